# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The way down the trees in C: a few rows side by side, one tree after the other, without Python's lock.

Where a row goes next is known only when its last comparison is: rows side by side fill that wait. Nodes of a tree lie
together (16 bytes each), so that a tree of a thousand stays in the first-level cache while a block of rows goes down.
The leaves of a row are added up in the order of the stages, as `trees.Trees.raw` does: the sums are the same to the bit.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc, free

cdef enum:
    ABREAST = 8  # rows
    BLOCK = 64  # rows that go down all trees before the next: of 784 float32 they take a tenth of a second-level cache
    LARGEST = 2147483647

cdef struct Node:
    double threshold
    int32_t feature
    int32_t left  # the right child is the next; a leaf's is itself

ctypedef fused real:
    float
    double


cdef class Descent:
    """What `trees.Trees` holds, checked and laid out for the way down; arguments as its fields.

    Raises:
        ValueError: an index leads out of the arrays, or a leaf has a threshold.
    """

    cdef Node* _nodes
    cdef uint8_t* _missing_right
    cdef int32_t* _leaf  # by node: where its numbers are
    cdef double* _numbers
    cdef int32_t* _roots
    cdef readonly Py_ssize_t features  # at least so many has a row
    cdef readonly Py_ssize_t outputs
    cdef Py_ssize_t _trees, _groups, _width
    cdef int32_t _depth

    def __init__(
        self,
        const Py_ssize_t[::1] roots,
        const Py_ssize_t[::1] feature,
        const double[::1] threshold,
        const Py_ssize_t[::1] left,
        const uint8_t[::1] missing_right,
        const double[:, ::1] leaves,
        int32_t depth,
        Py_ssize_t stages,
    ):
        cdef Py_ssize_t count = feature.shape[0], tree, node, column, leaf = 0
        cdef bint fits = count == threshold.shape[0] == left.shape[0] == missing_right.shape[0] == leaves.shape[0]
        if self._nodes != NULL or not fits or not 0 < count < LARGEST or stages < 1 or roots.shape[0] % stages:
            raise ValueError("its arrays do not fit each other")
        self._trees, self._groups, self._width = roots.shape[0], roots.shape[0] // stages, leaves.shape[1]
        self._depth, self.outputs = depth, self._groups * self._width
        self._nodes = <Node*>calloc(count, sizeof(Node))
        self._missing_right = <uint8_t*>calloc(count, sizeof(uint8_t))
        self._leaf = <int32_t*>calloc(count, sizeof(int32_t))
        self._numbers = <double*>calloc(max(1, count * self._width), sizeof(double))
        self._roots = <int32_t*>calloc(max(1, self._trees), sizeof(int32_t))
        if not (self._nodes and self._missing_right and self._leaf and self._numbers and self._roots):
            raise MemoryError
        for tree in range(self._trees):
            if not 0 <= roots[tree] < count:
                raise ValueError(f"tree {tree} begins outside of the nodes")
            self._roots[tree] = roots[tree]
        for node in range(count):
            if not 0 <= left[node] < count or not 0 <= feature[node] < LARGEST:
                raise ValueError(f"node {node} leads outside of the arrays")
            if left[node] == node and (threshold[node] != INFINITY or missing_right[node]):
                raise ValueError(f"node {node} is a leaf with a threshold")
            if left[node] != node and left[node] + 1 == count:
                raise ValueError(f"node {node} leads outside of the arrays")
            self._nodes[node] = Node(threshold[node], feature[node], left[node])
            self._missing_right[node] = missing_right[node] != 0  # one node further, whatever the byte
            self.features = max(self.features, feature[node] + 1)
            self._leaf[node] = leaf
            if left[node] == node:
                for column in range(self._width):
                    self._numbers[leaf * self._width + column] = leaves[node, column]
                leaf += 1

    def __dealloc__(self):
        free(self._nodes)
        free(self._missing_right)
        free(self._leaf)
        free(self._numbers)
        free(self._roots)

    def add(self, const real[:, ::1] rows, double[:, ::1] sums):
        """Add to `sums` (n, outputs) what the trees' leaves say about `rows` (n, features); they must be so large."""
        cdef Py_ssize_t tree, at, end, start = 0, count = rows.shape[0]
        if count != sums.shape[0] or rows.shape[1] < self.features or sums.shape[1] != self.outputs:
            raise ValueError(f"{rows.shape[1]} features and {sums.shape[1]} outputs for {self.features}, {self.outputs}")
        with nogil:
            while start < count:
                end = min(count, start + BLOCK)
                for tree in range(self._trees):
                    at = start
                    while at < end:
                        self._down(tree, &rows[at, 0], rows.shape[1], <int>min(ABREAST, end - at), &sums[at, 0])
                        at += ABREAST
                start = end

    cdef inline void _down(
        self, Py_ssize_t tree, const real* rows, Py_ssize_t features, int abreast, double* sums
    ) noexcept nogil:
        cdef int32_t[ABREAST] node
        cdef int32_t level, following, moved
        cdef int row
        cdef real value
        cdef const Node* its
        cdef const double* numbers
        cdef double* sum
        cdef Py_ssize_t column
        for row in range(abreast):
            node[row] = self._roots[tree]
        for level in range(self._depth):
            moved = 0
            for row in range(abreast):
                its = &self._nodes[node[row]]
                value = rows[row * features + its.feature]
                following = its.left + (value > its.threshold)
                if value != value:
                    following += self._missing_right[node[row]]
                moved |= following ^ node[row]
                node[row] = following
            if not moved:
                break
        for row in range(abreast):
            numbers = &self._numbers[self._leaf[node[row]] * self._width]
            sum = &sums[row * self.outputs + (tree % self._groups) * self._width]
            for column in range(self._width):
                sum[column] += numbers[column]
