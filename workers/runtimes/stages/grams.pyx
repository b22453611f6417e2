# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Texts to counts of n-grams to the sums of a linear model, in C; `grams_python` says the same in Python.

A text's tokens are written behind one another, each n-gram is a span of those bytes, and no string is made. Counts lie
in one array for all terms, and a bit for each term that occurs gives them back in order, so nothing is sorted. These
buffers are the process's: Python's lock is held while they are used, and where Python runs meanwhile they are filled again.

Sums are built in scikit-learn's order and precision, without fused multiply-add, so they are the same to the bit.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport (
    PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND, PyUnicode_READ, Py_UNICODE_ISALNUM, Py_UNICODE_ISSPACE,
)
from libc.math cimport exp, fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

import numpy as np

cdef extern from *:
    int __builtin_ctzll(unsigned long long)

cdef enum:
    WORDS = 0
    CHARACTERS = 1
    CHARACTERS_IN_WORDS = 2
    ENTRY = 12  # bytes of a term in a row: its value and its index
    KEPT = 65536  # a longer text's buffers are given back
    LOGS = 256  # counts whose logarithms lie ready

cdef Py_ssize_t MOST_GRAMS = 2147483647  # a count has 32 bits
cdef uint64_t FNV_START = 14695981039346656037ULL, FNV_PRIME = 1099511628211ULL

cdef struct Table:
    const uint64_t* slots
    const uint32_t* ends
    const uint8_t* text
    uint64_t mask

# The buffers.
cdef uint8_t* _text = NULL  # the tokens of one text, UTF-8
cdef int32_t* _starts = NULL  # of tokens, or of characters
cdef int32_t* _stops = NULL
cdef Py_ssize_t _length = -1  # characters that fit
cdef int32_t* _counts = NULL  # by term, 0 between texts
cdef uint64_t* _seen = NULL  # a bit for each term
cdef uint64_t* _blocks = NULL  # a bit for each of those words
cdef Py_ssize_t _terms = 0  # terms that fit
cdef int32_t* _index = NULL  # the row that was made last
cdef double* _value = NULL
cdef Py_ssize_t _found = 0  # entries that fit
cdef uint8_t[128] _IS_WORD
cdef uint8_t[128] _IS_SPACE

for _letter in range(128):
    _IS_WORD[_letter] = Py_UNICODE_ISALNUM(_letter) or _letter == 95
    _IS_SPACE[_letter] = Py_UNICODE_ISSPACE(_letter)


cdef int _reserve(Py_ssize_t length, Py_ssize_t terms, Py_ssize_t found) except -1:
    """Make room for a text of `length` characters, `terms` different terms, `found` of which may occur in it."""
    global _text, _starts, _stops, _length, _counts, _seen, _blocks, _terms, _index, _value, _found
    if length > _length:
        free(_text); free(_starts); free(_stops)
        _length = -1
        _text = <uint8_t*>malloc(6 * length + 16)
        _starts = <int32_t*>malloc((3 * length + 8) * sizeof(int32_t))
        _stops = <int32_t*>malloc((3 * length + 8) * sizeof(int32_t))
        if not (_text and _starts and _stops):
            raise MemoryError
        _length = length
    if terms > _terms:
        free(_counts); free(_seen); free(_blocks)
        _terms = 0
        _counts = <int32_t*>calloc(terms, sizeof(int32_t))
        _seen = <uint64_t*>calloc(terms // 64 + 1, sizeof(uint64_t))
        _blocks = <uint64_t*>calloc(terms // 4096 + 1, sizeof(uint64_t))
        if not (_counts and _seen and _blocks):
            raise MemoryError
        _terms = terms
    if found > _found:
        free(_index); free(_value)
        _found = 0
        _index = <int32_t*>malloc(found * sizeof(int32_t))
        _value = <double*>malloc(found * sizeof(double))
        if not (_index and _value):
            raise MemoryError
        _found = found
    return 0


cdef void _give_back() noexcept:
    """Give back what only a very long text has needed."""
    global _text, _starts, _stops, _length, _index, _value, _found
    if _length > KEPT:
        free(_text); free(_starts); free(_stops)
        _text, _starts, _stops, _length = NULL, NULL, NULL, -1
    if _found > KEPT:
        free(_index); free(_value)
        _index, _value, _found = NULL, NULL, 0


cdef inline Py_ssize_t _put(Py_ssize_t at, uint32_t letter) noexcept:
    """Write a character and return where the next one goes."""
    if letter < 0x80:
        _text[at] = <uint8_t>letter
        return at + 1
    if letter < 0x800:
        _text[at] = <uint8_t>(0xC0 | (letter >> 6))
        _text[at + 1] = <uint8_t>(0x80 | (letter & 0x3F))
        return at + 2
    if letter < 0x10000:
        _text[at] = <uint8_t>(0xE0 | (letter >> 12))
        _text[at + 1] = <uint8_t>(0x80 | ((letter >> 6) & 0x3F))
        _text[at + 2] = <uint8_t>(0x80 | (letter & 0x3F))
        return at + 3
    _text[at] = <uint8_t>(0xF0 | (letter >> 18))
    _text[at + 1] = <uint8_t>(0x80 | ((letter >> 12) & 0x3F))
    _text[at + 2] = <uint8_t>(0x80 | ((letter >> 6) & 0x3F))
    _text[at + 3] = <uint8_t>(0x80 | (letter & 0x3F))
    return at + 4


cdef inline bint _is_word(uint32_t letter) noexcept:
    return _IS_WORD[letter] if letter < 128 else Py_UNICODE_ISALNUM(letter)


cdef inline bint _is_space(uint32_t letter) noexcept:
    return _IS_SPACE[letter] if letter < 128 else Py_UNICODE_ISSPACE(letter)


cdef inline uint64_t _extended(uint64_t hashed, Py_ssize_t start, Py_ssize_t stop) noexcept:
    """Return the FNV-1a hash of a span that goes on."""
    cdef Py_ssize_t at
    for at in range(start, stop):
        hashed = (hashed ^ _text[at]) * FNV_PRIME
    return hashed


cdef inline int32_t _find(const Table* table, Py_ssize_t start, Py_ssize_t stop, uint64_t hashed) noexcept:
    """Return a term's number, -1 if there is no such term."""
    cdef uint64_t place = (hashed ^ (hashed >> 32)) & table.mask, slot
    cdef uint32_t first
    cdef int32_t number
    while True:
        slot = table.slots[place]
        if slot == 0:
            return -1
        if (slot >> 32) == (hashed >> 32):
            number = <int32_t>(<uint32_t>slot - 1)
            first = table.ends[number - 1] if number else 0
            if <Py_ssize_t>(table.ends[number] - first) == stop - start:
                if memcmp(table.text + first, _text + start, stop - start) == 0:
                    return number
        place = (place + 1) & table.mask


cdef inline uint32_t _rotated(uint32_t value, int by) noexcept:
    return (value << by) | (value >> (32 - by))


cdef inline int32_t _murmur(Py_ssize_t start, Py_ssize_t stop) noexcept:
    """Return the MurmurHash3 (x86, 32 bits, seed 0) of a span, as `HashingVectorizer` takes it."""
    cdef uint32_t hashed = 0, block, size = <uint32_t>(stop - start)
    cdef const uint8_t* at = _text + start
    cdef Py_ssize_t number
    for number in range(size // 4):
        memcpy(&block, at, 4)
        hashed ^= _rotated(block * 0xCC9E2D51u, 15) * 0x1B873593u
        hashed = _rotated(hashed, 13) * 5 + 0xE6546B64u
        at += 4
    block = 0
    if size & 3 == 3:
        block ^= <uint32_t>at[2] << 16
    if size & 3 >= 2:
        block ^= <uint32_t>at[1] << 8
    if size & 3:
        block ^= at[0]
        hashed ^= _rotated(block * 0xCC9E2D51u, 15) * 0x1B873593u
    hashed ^= size
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6Bu
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35u
    return <int32_t>(hashed ^ (hashed >> 16))


cdef class Terms:
    """A vocabulary that is searched where it lies.

    Args:
        slots: (a power of two,), the upper half of a term's hash and its number + 1, or 0.
        ends: (terms,), where the bytes of each term end.
        text: the terms, UTF-8, behind one another.

    Raises:
        ValueError: these arrays do not fit each other.
    """

    cdef const uint64_t[::1] _slots
    cdef const uint32_t[::1] _ends
    cdef const uint8_t[::1] _bytes
    cdef Table table
    cdef readonly Py_ssize_t count

    def __init__(self, const uint64_t[::1] slots, const uint32_t[::1] ends, const uint8_t[::1] text):
        cdef Py_ssize_t size = slots.shape[0], count = ends.shape[0], number
        cdef uint64_t slot
        cdef uint32_t before = 0
        cdef bint has_end = False
        if size < 2 or size & (size - 1) or not 0 < count < size or count >= 1 << 30 or text.shape[0] >= 1 << 32:
            raise ValueError("a vocabulary's arrays do not fit each other")
        for number in range(count):
            if ends[number] < before or ends[number] > text.shape[0]:
                raise ValueError(f"term {number} lies outside of the vocabulary's bytes")
            before = ends[number]
        for number in range(size):
            slot = slots[number]
            has_end |= slot == 0
            if <uint32_t>slot > count or (slot != 0 and <uint32_t>slot == 0):
                raise ValueError("a vocabulary's slot leads to no term")
        if not has_end:
            raise ValueError("a vocabulary has no free slot")
        self._slots, self._ends, self._bytes, self.count = slots, ends, text, count
        self.table = Table(&slots[0], &ends[0], NULL, size - 1)
        if text.shape[0]:
            self.table.text = &text[0]


cdef class Grams:
    """How a text becomes a row: which n-grams are counted, and how counts are weighed. Arguments: see `texts.Counting`
    and `texts.Weighing`; `logs` returns 1 + the logarithms of an array of counts.
    """

    cdef int _analyzer, _shortest, _least, _most, _norm
    cdef bint _lower, _signed, _binary, _is_scaled
    cdef object _accents, _logarithms
    cdef Terms _vocabulary, _stopped
    cdef Table _table, _stops_table
    cdef bint _has_stops
    cdef readonly Py_ssize_t features
    cdef const double[::1] _logs
    cdef const double[::1] _idf
    cdef double _scale

    def __init__(
        self, int analyzer, bint lower, object accents, int shortest, int least, int most, Terms vocabulary,
        Terms stopped, Py_ssize_t features, bint signed, bint binary, object logs, const double[::1] idf, int norm,
        double scale,
    ):
        if not 1 <= least <= most <= 64 or not 0 <= analyzer <= 2 or not 0 < features < 1 << 30:
            raise ValueError("no n-grams can be counted so")
        if vocabulary is not None and vocabulary.count != features:
            raise ValueError("the vocabulary has another number of terms")
        if idf is not None and idf.shape[0] != features:
            raise ValueError("the weights of terms do not fit the vocabulary")
        if logs is not None and signed:
            raise ValueError("counts with signs have no logarithm")
        self._analyzer, self._lower, self._accents, self._shortest = analyzer, lower, accents, shortest
        self._least, self._most, self.features, self._signed, self._binary = least, most, features, signed, binary
        self._vocabulary, self._stopped, self._has_stops = vocabulary, stopped, stopped is not None
        if vocabulary is not None:
            self._table = vocabulary.table
        if stopped is not None:
            self._stops_table = stopped.table
        self._logarithms, self._idf, self._norm = logs, idf, norm
        self._logs = None if logs is None else logs(np.arange(1.0, LOGS + 1))
        self._scale, self._is_scaled = scale, scale != 1.0

    def row(self, str text not None):
        """Return the row of a text: its values (float64), then their terms (int32), as bytes."""
        return _packed(self._fill(text))

    cdef Py_ssize_t _fill(self, str text) except -1:
        """Leave the row of a text in the buffers and return how many terms it has."""
        cdef Py_ssize_t length, most, count
        cdef int kind
        cdef void* data
        if self._lower:
            text = text.lower()
        if self._accents is not None:
            text = self._accents(text)
        length = PyUnicode_GET_LENGTH(text)
        if length > 1 << 26:
            raise ValueError("the text is too long")
        most = (2 * length + 2) * (self._most - self._least + 1)  # n-grams; where they are hashed, of one term
        if most > MOST_GRAMS:
            raise ValueError("the text is too long for so many lengths of n-grams")
        _reserve(length, self.features, min(self.features, most))
        kind, data = PyUnicode_KIND(text), PyUnicode_DATA(text)
        if self._analyzer == WORDS:
            self._words(kind, data, length)
        elif self._analyzer == CHARACTERS:
            self._characters(kind, data, length)
        else:
            self._characters_in_words(kind, data, length)
        count = self._taken()
        if self._logarithms is not None:
            self._take_logarithms(count)
        self._weigh(count)
        return count

    cdef void _words(self, int kind, void* data, Py_ssize_t length) noexcept:
        cdef Py_ssize_t at = 0, place = 0, start, first, tokens = 0
        cdef uint32_t letter
        cdef int32_t token, last
        cdef uint64_t hashed
        while place < length:
            letter = PyUnicode_READ(kind, data, place)
            if not _is_word(letter):
                place += 1
                continue
            start, first = at, place
            while True:
                at = _put(at, letter)
                place += 1
                if place == length:
                    break
                letter = PyUnicode_READ(kind, data, place)
                if not _is_word(letter):
                    break
            if place - first < self._shortest or (
                self._has_stops and _find(&self._stops_table, start, at, _extended(FNV_START, start, at)) >= 0
            ):
                at = start
                continue
            _starts[tokens], _stops[tokens] = <int32_t>start, <int32_t>at
            tokens += 1
            _text[at] = 32
            at += 1
        for token in range(tokens):
            hashed, start = FNV_START, _starts[token]
            at = start
            for last in range(token, min(tokens, token + self._most)):
                hashed = _extended(hashed, at, _stops[last])
                at = _stops[last]
                if last - token + 1 >= self._least:
                    self._count(start, at, hashed)

    cdef void _characters(self, int kind, void* data, Py_ssize_t length) noexcept:
        cdef Py_ssize_t place = 0, at = 0, letters = 0, following
        cdef uint32_t letter
        while place < length:
            letter = PyUnicode_READ(kind, data, place)
            following = place + 1
            if _is_space(letter):
                while following < length and _is_space(PyUnicode_READ(kind, data, following)):
                    following += 1
                if following > place + 1:
                    letter = 32
            _starts[letters] = <int32_t>at
            letters += 1
            at = _put(at, letter)
            place = following
        _starts[letters] = <int32_t>at
        self._spans(0, letters)

    cdef void _spans(self, Py_ssize_t first, Py_ssize_t last) noexcept:
        """Count the n-grams of characters `first` to `last`, which is not among them."""
        cdef Py_ssize_t letter, following
        cdef uint64_t hashed
        for letter in range(first, last):
            hashed = FNV_START
            for following in range(letter + 1, min(last, letter + self._most) + 1):
                hashed = _extended(hashed, _starts[following - 1], _starts[following])
                if following - letter >= self._least:
                    self._count(_starts[letter], _starts[following], hashed)

    cdef void _characters_in_words(self, int kind, void* data, Py_ssize_t length) noexcept:
        cdef Py_ssize_t place = 0, at, letters
        cdef uint32_t letter
        while place < length:
            letter = PyUnicode_READ(kind, data, place)
            if _is_space(letter):
                place += 1
                continue
            _starts[0], _text[0] = 0, 32
            at, letters = 1, 1
            while not _is_space(letter):
                _starts[letters] = <int32_t>at
                letters += 1
                at = _put(at, letter)
                place += 1
                if place == length:
                    break
                letter = PyUnicode_READ(kind, data, place)
            _starts[letters], _text[at] = <int32_t>at, 32
            letters += 1
            at += 1
            _starts[letters] = <int32_t>at
            if letters <= self._least:  # a short word counts once
                self._count(0, at, _extended(FNV_START, 0, at))
            else:
                self._spans(0, letters)

    cdef inline void _count(self, Py_ssize_t start, Py_ssize_t stop, uint64_t hashed) noexcept:
        cdef int32_t number, sign = 1
        if self._vocabulary is not None:
            number = _find(&self._table, start, stop, hashed)
            if number < 0:
                return
        else:
            number = _murmur(start, stop)
            sign = -1 if self._signed and number < 0 else 1
            if number == -2147483648:
                number = <int32_t>((2147483647 - (self.features - 1)) % self.features)
            else:
                number = <int32_t>((-number if number < 0 else number) % self.features)
        _counts[number] += sign
        _seen[number >> 6] |= <uint64_t>1 << (number & 63)
        _blocks[number >> 12] |= <uint64_t>1 << ((number >> 6) & 63)

    cdef Py_ssize_t _taken(self) noexcept:
        """Take the counts out of the buffers, in order, and return how many there are."""
        cdef Py_ssize_t block, word, count = 0
        cdef int32_t number
        for block in range(self.features // 4096 + 1):
            while _blocks[block]:
                word = (block << 6) + __builtin_ctzll(_blocks[block])
                _blocks[block] &= _blocks[block] - 1
                while _seen[word]:
                    number = <int32_t>((word << 6) + __builtin_ctzll(_seen[word]))
                    _seen[word] &= _seen[word] - 1
                    _index[count], _value[count] = number, 1.0 if self._binary else _counts[number]
                    _counts[number] = 0
                    count += 1
        return count

    cdef int _take_logarithms(self, Py_ssize_t count) except -1:
        """Replace counts by 1 + their logarithms, as NumPy computes them here."""
        cdef Py_ssize_t place
        cdef bytes row
        cdef const double[::1] logs
        for place in range(count):
            if _value[place] > LOGS:
                break
        else:
            for place in range(count):
                _value[place] = self._logs[<Py_ssize_t>_value[place] - 1]
            return 0
        row = _packed(count)  # Python runs now, and others may use the buffers
        logs = self._logarithms(np.frombuffer(row, np.float64, count))
        if logs.shape[0] != count:
            raise ValueError("the logarithms do not fit the counts")
        _reserve(0, 0, count)
        memcpy(_value, &logs[0], count * sizeof(double))
        memcpy(_index, PyBytes_AS_STRING(row) + count * sizeof(double), count * sizeof(int32_t))
        return 0

    cdef void _weigh(self, Py_ssize_t count) noexcept:
        cdef Py_ssize_t place
        cdef double total = 0.0
        if self._idf is not None:
            for place in range(count):
                _value[place] *= self._idf[_index[place]]
        if self._norm:
            for place in range(count):
                total += _value[place] * _value[place] if self._norm == 2 else fabs(_value[place])
            if total != 0.0:
                total = sqrt(total) if self._norm == 2 else total
                for place in range(count):
                    _value[place] /= total
        if self._is_scaled:
            for place in range(count):
                _value[place] *= self._scale


cdef bytes _packed(Py_ssize_t count):
    cdef bytes row = PyBytes_FromStringAndSize(NULL, count * ENTRY)
    cdef char* at = PyBytes_AS_STRING(row)
    memcpy(at, _value, count * sizeof(double))
    memcpy(at + count * sizeof(double), _index, count * sizeof(int32_t))
    return row


cdef class Scorer:
    """Adds up what a linear model says about rows that lie side by side, before its intercept.

    Args:
        grams: of each part of a row.
        weights: (features of all parts, k).

    Raises:
        ValueError: there are fewer weights than features.
    """

    cdef tuple _grams
    cdef const double[:, ::1] _weights
    cdef Py_ssize_t _outputs

    def __init__(self, tuple grams, const double[:, ::1] weights):
        if sum(each.features for each in grams) != weights.shape[0] or not weights.shape[1]:
            raise ValueError("the linear model has another number of features")
        self._grams, self._weights, self._outputs = grams, weights, weights.shape[1]

    def add(self, texts, double[:, ::1] sums, tuple tables):
        """Add to `sums` (n, k) what the model says about n texts.

        Args:
            texts: n of them.
            sums: 0.
            tables: of each part, None or two dicts of rows by text: those of late, to which new ones are added, and
                earlier ones.

        Returns:
            The bytes of the rows that were added to the tables.
        """
        cdef Py_ssize_t row, part, count, offset, added = 0
        cdef Grams grams
        cdef bytes known
        cdef dict young, old
        cdef str text
        if sums.shape[0] != len(texts) or sums.shape[1] != self._outputs or len(tables) != len(self._grams):
            raise ValueError("the sums do not fit the texts")
        for row in range(sums.shape[0]):
            text, offset = texts[row], 0
            if text is None:
                raise TypeError("a row is no text")
            for part in range(len(self._grams)):
                grams = self._grams[part]
                if tables[part] is None:
                    count = grams._fill(text)
                    self._add(&sums[row, 0], offset, count, _value, _index)
                else:
                    young, old = tables[part]
                    known = young.get(text)
                    if known is None:
                        known = old.get(text)
                        if known is None:
                            known = grams.row(text)
                        young[text] = known
                        added += PyBytes_GET_SIZE(known) + PyUnicode_GET_LENGTH(text) * PyUnicode_KIND(text) + 200
                    count = PyBytes_GET_SIZE(known) // ENTRY
                    self._add(
                        &sums[row, 0],
                        offset,
                        count,
                        <const double*>PyBytes_AS_STRING(known),
                        <const int32_t*>(PyBytes_AS_STRING(known) + count * sizeof(double)),
                    )
                offset += grams.features
        _give_back()
        return added

    cdef inline void _add(
        self, double* sums, Py_ssize_t offset, Py_ssize_t count, const double* values, const int32_t* terms
    ) noexcept:
        cdef Py_ssize_t place, output
        cdef const double* weights
        cdef double total, value
        if self._outputs == 1:
            weights, total = &self._weights[offset, 0], sums[0]
            for place in range(count):
                total += values[place] * weights[terms[place]]
            sums[0] = total
            return
        for place in range(count):
            weights, value = &self._weights[offset + terms[place], 0], values[place]
            for output in range(self._outputs):
                sums[output] += value * weights[output]


def logistic(double[::1] numbers):
    """Replace numbers by their logistic function, as SciPy computes it."""
    cdef Py_ssize_t place
    for place in range(numbers.shape[0]):
        numbers[place] = 1.0 / (1.0 + exp(-numbers[place]))
