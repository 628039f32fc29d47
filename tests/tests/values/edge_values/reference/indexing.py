"""Reading and writing at indices of every integer type, the limits of the type included."""
import numpy as np

from make import L, row
from values import INTEGERS, TABLE


def near(index):
    return np.array([min(max(int(value), 0), len(TABLE) - 1) for value in index])


def take_back(index, table, c):
    back = np.zeros(len(TABLE), L)
    np.add.at(back, near(index), c)
    return back


def within(index):
    return [(at, int(value)) for at, value in enumerate(index) if 0 <= int(value) < len(TABLE)]


def scattered(index, table):
    added, replaced = table.copy(), table.copy()
    for at, to in within(index):
        added[to] += at + 1
        replaced[to] = at + 1
    return added, replaced


f32 = lambda _: "f32"
row("take", "indices", INTEGERS, lambda index, table: (table[near(index)], table[near(index)], table[near(index)]), None, take_back, result=f32)
row("scatter", "indices", INTEGERS, scattered, result=f32)
row("one_hot", "indices", INTEGERS, lambda index, table: np.array([[int(value) == kind for kind in range(7)] for value in index]).astype(L), result=f32)


def dynamic(index, table):
    """Parts of two elements that begin at each index."""
    starts = [min(max(int(value), 0), len(TABLE) - 2) for value in index]
    update = [np.concatenate([table[:at], [9, 9], table[at + 2 :]]) for at in starts]
    return np.array([table[at : at + 2] for at in starts]), np.array(update)


row("dynamic_slice", "indices", INTEGERS, dynamic, result=f32)
