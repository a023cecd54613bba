/**
 * Arithmetic of shapes and strides.
 *
 * @module
 */

/**
 * Elements of an array in memory.
 *
 * @typedef {{ data: any, shape: number[], stride: number[] }} Chunk
 */

/** @param {number[]} shape */
export function sizeOf(shape) {
	return shape.reduce((size, n) => size * n, 1);
}

/**
 * Strides of C order.
 *
 * @param {number[]} shape
 */
export function stridesOf(shape) {
	const strides = new Array(shape.length);
	let step = 1;
	for (let i = shape.length - 1; i >= 0; i--) {
		strides[i] = step;
		step *= shape[i];
	}
	return strides;
}

/**
 * All combinations of one entry of every list, in C order.
 *
 * @template T
 * @param {T[][]} lists
 * @returns {Generator<T[]>}
 */
export function* combinations(lists, taken = /** @type {T[]} */ ([])) {
	if (taken.length === lists.length) {
		yield taken;
		return;
	}
	for (const entry of lists[taken.length]) yield* combinations(lists, [...taken, entry]);
}

/** @param {number} n */
export function upTo(n) {
	return Array.from({ length: n }, (_, i) => i);
}

/**
 * Copies a box of elements.
 *
 * @param {number[]} counts
 * @param {{ data: any, offset: number, stride: number[] }} from
 * @param {{ data: any, offset: number, stride: number[] }} to
 * @param {((value: any) => any) | null} change what to make of each element
 */
export function copy(counts, from, to, change = null) {
	const last = counts.length - 1;
	const [count, step, stride] = last < 0 ? [1, 0, 0] : [counts[last], from.stride[last], to.stride[last]];
	/** @type {(axis: number, source: number, target: number) => void} */
	const along = (axis, source, target) => {
		if (axis < last) {
			for (let i = 0; i < counts[axis]; i++) {
				along(axis + 1, source + i * from.stride[axis], target + i * to.stride[axis]);
			}
			return;
		}
		for (let i = 0; i < count; i++) {
			const value = from.data[source + i * step];
			to.data[target + i * stride] = change ? change(value) : value;
		}
	};
	along(0, from.offset, to.offset);
}

/**
 * The elements in C order.
 *
 * @param {Chunk} chunk
 * @param {any} room
 */
export function inOrder(chunk, room) {
	copy(chunk.shape, { ...chunk, offset: 0 }, { data: room, offset: 0, stride: stridesOf(chunk.shape) });
	return room;
}
