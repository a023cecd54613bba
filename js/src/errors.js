/**
 * What goes wrong.
 *
 * @module
 */

/** The metadata of an array or a logical array is not valid, or asks for what is not known here. */
export class MetadataError extends Error {
	name = "MetadataError";
}

/** A chunk cannot be decoded: it is damaged, or was written otherwise than its metadata says. */
export class ChunkError extends Error {
	name = "ChunkError";
}

/** A member is missing, or is not what its logical array needs. */
export class MemberError extends Error {
	name = "MemberError";
}

/**
 * @param {any} condition
 * @param {string} message
 * @returns {asserts condition}
 */
export function valid(condition, message) {
	if (!condition) throw new MetadataError(message);
}

/**
 * @param {any} condition
 * @param {string} message
 * @returns {asserts condition}
 */
export function intact(condition, message) {
	if (!condition) throw new ChunkError(message);
}
