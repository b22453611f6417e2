# What policies learn from one lesson, step by step as in `policies/`: the same to the last bit, as long as a compiler keeps
# to the order (`-ffp-contract=off` where a machine multiplies and adds in one).

from libc.math cimport INFINITY, exp, isfinite, log
from libc.stdint cimport int64_t

cdef enum Kind:
    UNTAUGHT = 0  # a policy that is not here
    NOTHING_LEARNT = 1  # `single`
    WEIGHTS = 2  # `exp3`, which shares
    AVERAGES = 3  # `epsilon_greedy`, `ucb1`
    DISCOUNTED = 4  # `discounted_ucb`
    BETAS = 5  # `thompson`
    VOTES = 6  # `exp4`, which learns from all arms
    CLASSES = 7  # `class_vote`, which learns from all arms by what they have answered; see `policies/class_counts.py`


cdef enum:  # cells of an arm
    REST = 1  # of the classes without a cell of their own; 0 = of all its answers
    FIRST = 2  # of the others


cdef struct Rule:
    Kind kind
    double eta  # or the discount
    double share
    int64_t classes  # that have counts of their own


cdef struct Lesson:
    int64_t arm
    bint is_known
    double loss
    double propensity
    const double* losses  # of all arms, not finite where it is not known; of `VOTES` and `CLASSES` alone
    const double* labels  # that all arms have answered, by their keys, not finite where it is none; of `CLASSES` alone


cdef inline int64_t numbers_of(const Rule* rule, int64_t arms) noexcept nogil:
    """Return how many numbers a state has."""
    if rule.kind == CLASSES:
        return rule.classes + 2 * arms * (FIRST + rule.classes)
    return 0 if rule.kind == NOTHING_LEARNT else arms if rule.kind == WEIGHTS or rule.kind == VOTES else 2 * arms


cdef inline int64_t known_classes(const Rule* rule, const double* numbers) noexcept nogil:
    """Return how many classes have counts of their own."""
    cdef int64_t count = 0
    while count < rule.classes and numbers[count]:
        count += 1
    return count


cdef inline bint are_classes(const Rule* rule, const double* numbers) noexcept nogil:
    """Tell whether the keys in a state are different, and nothing stands behind them."""
    cdef int64_t index, other, count = known_classes(rule, numbers)
    for index in range(rule.classes):
        if index >= count and numbers[index]:
            return False
        for other in range(min(index, count)):
            if numbers[index] and numbers[index] == numbers[other]:
                return False
    return True


cdef inline void counted(const Rule* rule, const Lesson* lesson, double* numbers, int64_t arms) noexcept nogil:
    """Count each known loss, in the cell of what the arm answered and in that of all."""
    cdef int64_t arm, place, known = known_classes(rule, numbers), width = FIRST + rule.classes
    cdef double* its
    for arm in range(arms):
        if not isfinite(lesson.losses[arm]):
            continue
        its = numbers + rule.classes + 2 * arm * width
        count_in(rule, its, lesson.losses[arm], width)
        if not isfinite(lesson.labels[arm]):
            continue
        place = 0
        while place < known and numbers[place] != lesson.labels[arm]:
            place += 1
        if place == known and known < rule.classes:
            numbers[known] = lesson.labels[arm]
            known += 1
        count_in(rule, its + (FIRST + place if place < known else REST), lesson.losses[arm], width)


cdef inline void count_in(const Rule* rule, double* cell, double loss, int64_t width) noexcept nogil:
    """Count a loss in a cell; `eta` is what the former counts keep."""
    cell[0] = rule.eta * cell[0] + 1.0 - loss
    cell[width] = rule.eta * cell[width] + loss


cdef inline bint voted(const Rule* rule, const double* losses, double* logs, int64_t arms) noexcept nogil:
    """Lower each weight by its arm's loss and share, among the arms whose loss is known; False = these leave the numbers."""
    cdef int64_t index, count = 0
    cdef double mass, total, kept = 1.0 - rule.share, back
    for index in range(arms):
        count += isfinite(losses[index])
    if not count:
        return True
    mass = log_sum(losses, logs, arms) if count < arms else 0.0
    for index in range(arms):
        if isfinite(losses[index]):
            logs[index] -= rule.eta * losses[index]
            if not isfinite(logs[index]):
                return False
    total, back = log_sum(losses, logs, arms), rule.share / count
    for index in range(arms):
        if isfinite(losses[index]):
            logs[index] -= total
            if rule.share:
                logs[index] = log(kept * exp(logs[index]) + back)
            if count < arms:
                logs[index] += mass
    return True


cdef inline double log_sum(const double* losses, const double* logs, int64_t arms) noexcept nogil:
    """Return the logarithm of the summed weights of the arms whose loss is known; there is one at least."""
    cdef int64_t index
    cdef double top = -INFINITY, total = 0.0
    for index in range(arms):
        if isfinite(losses[index]) and logs[index] > top:
            top = logs[index]
    for index in range(arms):
        if isfinite(losses[index]):
            total += exp(logs[index] - top)
    return top + log(total)


cdef inline bint taught(
    const Rule* rule, const Lesson* lesson, const double* before, double* after, int64_t arms
) noexcept nogil:
    """Work out the state after a lesson; False = Python would say that it cannot be learnt.

    Args:
        rule: of the policy.
        lesson: an arm that was asked, and what it has cost; or all.
        before: the state, `numbers_of` numbers.
        after: as many, all written.
        arms: how many there are.
    """
    cdef int64_t index, count = numbers_of(rule, arms)
    cdef double total = 0.0, back
    for index in range(count):
        after[index] = before[index]
    if rule.kind == VOTES:
        if not voted(rule, lesson.losses, after, arms):
            return False
    elif rule.kind == CLASSES:
        counted(rule, lesson, after, arms)
    elif not lesson.is_known or rule.kind == NOTHING_LEARNT:
        pass
    elif rule.kind == WEIGHTS:
        after[lesson.arm] -= rule.eta * lesson.loss / (1e-9 if 1e-9 > lesson.propensity else lesson.propensity)
        back = 2.718281828459045 * rule.share / arms
        for index in range(arms):
            after[index] = exp(after[index]) + back
            total += after[index]
        if not 0.0 < total <= 1.7976931348623157e308:
            return False
        total = log(total)
        for index in range(arms):
            if not 0.0 < after[index] <= 1.7976931348623157e308:
                return False
            after[index] = log(after[index]) - total
    elif rule.kind == BETAS:
        after[lesson.arm] += 1.0 - lesson.loss
        after[arms + lesson.arm] += lesson.loss
    else:
        if rule.kind == DISCOUNTED:
            for index in range(count):
                after[index] = rule.eta * after[index]
        after[lesson.arm] += 1.0
        after[arms + lesson.arm] += lesson.loss
    for index in range(count):
        if not isfinite(after[index]):
            return False
    return True
