/**
 * Logical arrays: one array that a manifest assembles from members.
 *
 * @module
 */

import { Readable, ZarrArray, join, metadataOf } from "./array.js";
import { MemberError, valid } from "./errors.js";
import { parseManifest, without } from "./manifest.js";
import { unpacker } from "./packing.js";
import { sameType, typeText } from "./types.js";

/**
 * @typedef {import("./array.js").Store} Store
 * @typedef {import("./array.js").Axis} Axis
 * @typedef {import("./manifest.js").Manifest} Manifest
 * @typedef {import("./manifest.js").Region} Region
 */

/** The attribute that holds the manifest. */
export const KEY = "intarsia";

/** How often a layout that others change is read again. */
const TRIES = 5;

/** One array, assembled from members as its manifest says. */
export class LogicalArray extends Readable {
	/**
	 * @param {Store} store
	 * @param {string} path
	 * @param {any} metadata of the group
	 */
	static async of(store, path, metadata) {
		const array = new LogicalArray(store, path);
		await array.#take(metadata);
		return array;
	}

	/** @type {Map<string, Promise<ZarrArray>>} */
	#members = new Map();

	/**
	 * @param {Store} store
	 * @param {string} path
	 */
	constructor(store, path) {
		super();
		this.store = store;
		this.path = path;
		/** @type {Manifest} */
		this.manifest = /** @type {any} */ (null);
		/** @type {any} */
		this.attributes = {};
		/** The layer to read from, wherever it has something; layer 0 has the rest. */
		this.layer = 0;
	}

	/** @param {any} metadata */
	async #take(metadata) {
		valid(
			metadata?.node_type === "group" && metadata.attributes && KEY in metadata.attributes,
			`${this.path}: this is no logical array`,
		);
		this.manifest = await parseManifest(metadata.attributes[KEY], (name, width, most) =>
			this.#table(name, width, most),
		);
		const { [KEY]: _manifest, zarr_conventions: _conventions, ...attributes } = metadata.attributes;
		this.attributes = attributes;
		({ shape: this.shape, type: this.type, fill: this.fill } = this.manifest);
		this.#members.clear();
	}

	/** The lattice that regions align to. */
	get chunkShape() {
		return this.manifest.chunkShape;
	}

	get dimensionNames() {
		return this.manifest.dimensionNames;
	}

	/**
	 * The rows of a region table.
	 *
	 * @param {string} name
	 * @param {number} width
	 * @param {number} most
	 * @returns {Promise<bigint[][]>}
	 */
	async #table(name, width, most) {
		const path = join(this.path, name);
		const metadata = await metadataOf(this.store, path);
		valid(metadata, `regions: the table ${name} is missing`);
		const table = await ZarrArray.of(this.store, path, metadata);
		const fits = table.type === "int64" && table.shape.length === 2 && table.shape[1] === width;
		valid(
			fits,
			`regions: the table ${name} is ${typeText(table.type)} of shape ${table.shape}, not int64 of ${width} columns`,
		);
		valid(
			table.shape[0] <= most,
			`regions: the table ${name} has ${table.shape[0]} rows; there is room for ${most} regions`,
		);
		const { data } = await table.get();
		valid(!table.missed, `regions: a chunk of the table ${name} is not stored`);
		return Array.from({ length: table.shape[0] }, (_, i) =>
			Array.from(data.subarray(i * width, (i + 1) * width)),
		);
	}

	/**
	 * A member, checked against all of its regions.
	 *
	 * @param {number} number
	 */
	member(number) {
		const name = this.manifest.members[number];
		let found = this.#members.get(name);
		if (!found) {
			found = this.#openMember(name, number);
			this.#members.set(name, found);
		}
		return found;
	}

	/**
	 * @param {string} name
	 * @param {number} number
	 */
	async #openMember(name, number) {
		const path = join(this.path, name);
		const metadata = await metadataOf(this.store, path);
		if (!metadata) throw new MissingMember(`the member ${name} of ${this.path} is missing`);
		const member = await ZarrArray.of(this.store, path, metadata);
		for (const region of [...this.manifest.regions, ...this.manifest.replicas]) {
			if (region.member !== number) continue;
			const { packings, type } = this.manifest;
			const wanted = region.packing < 0 ? type : packings[region.packing].kind.stored;
			if (!sameType(member.type, wanted)) {
				throw new MemberError(
					`the member ${name} is ${typeText(member.type)}; its region needs ${typeText(wanted)}`,
				);
			}
			const axes = this.#memberAxes(
				region,
				this.#bounds(region).map(({ low, high }) => ({ start: low, step: 1, count: high - low, stride: 0 })),
			);
			const reaches =
				axes.length === member.shape.length &&
				axes.every(
					({ start, step, count }, i) => Math.max(start, start + step * (count - 1)) < member.shape[i],
				);
			if (!reaches)
				throw new MemberError(`the member ${name} of shape ${member.shape} is smaller than its region needs`);
		}
		return member;
	}

	/**
	 * The elements of a region, or of a box of logical chunks, on every axis.
	 *
	 * @param {{ start: number[], stop: number[] }} region
	 */
	#bounds({ start, stop }) {
		const { shape, chunkShape } = this.manifest;
		return shape.map((length, i) => ({
			low: start[i] * chunkShape[i],
			high: Math.min(stop[i] * chunkShape[i], length),
		}));
	}

	/**
	 * Elements of the array, all of them in a region, as elements of its member.
	 *
	 * @param {Region} region
	 * @param {Axis[]} axes
	 * @returns {Axis[]}
	 */
	#memberAxes({ start, memberStart, view }, axes) {
		const { chunkShape, views } = this.manifest;
		const places = axes.map((axis, d) => ({
			...axis,
			start: axis.start + (memberStart[d] - start[d]) * chunkShape[d],
		}));
		if (view < 0) return places;
		return views[view].map(({ source, offset, stride }) => {
			if (source === null) return { start: offset, step: 1, count: 1, stride: 0 };
			const place = places[source];
			return { ...place, start: offset + stride * place.start, step: stride * place.step };
		});
	}

	/**
	 * Where chunks or members are missing, the layout may have been replaced since the manifest was read: then the
	 * manifest is read anew, and so are the values.
	 *
	 * @param {import("./array.js").Selection[]} [selection]
	 */
	async get(selection = []) {
		for (let attempt = 1; ; attempt++) {
			for (const member of this.#members.values()) (await member.catch(() => null))?.forget();
			/** @type {any} */
			let failure = null;
			const found = await super.get(selection).catch((error) => {
				if (!(error instanceof MissingMember)) throw error;
				failure = error;
				return null;
			});
			if ((found && !(await this.#missed())) || attempt === TRIES || !(await this.#reloaded())) {
				if (failure) throw failure;
				return /** @type {{ data: any, shape: number[] }} */ (found);
			}
		}
	}

	async #missed() {
		const members = await Promise.all(this.#members.values());
		return members.some((member) => member.missed);
	}

	/** Whether the group has another manifest by now, which is then taken. */
	async #reloaded() {
		const metadata = await metadataOf(this.store, this.path);
		if (metadata?.attributes?.[KEY]?.generation === this.manifest.generation) return false;
		await this.#take(metadata);
		return true;
	}

	/**
	 * What is read from: a region each, and the box of it. Of a layer that is asked for, all that it has, and of
	 * layer 0 the rest.
	 */
	#backings() {
		const { regions, replicas } = this.manifest;
		const chosen = this.layer === 0 ? [] : replicas.filter(({ layer }) => layer === this.layer);
		const found = chosen.map((region) => ({ region, box: { start: region.start, stop: region.stop } }));
		for (const region of regions) {
			let left = [{ start: region.start, stop: region.stop }];
			for (const replica of chosen) left = left.flatMap((box) => without(box, replica));
			found.push(...left.map((box) => ({ region, box })));
		}
		return found;
	}

	/**
	 * @param {Axis[]} axes
	 * @param {any} out
	 * @param {number} offset
	 */
	async readInto(axes, out, offset) {
		const { packings, type } = this.manifest;
		for (const { region, box } of this.#backings()) {
			let at = offset;
			const parts = this.#bounds(box).map(({ low, high }, d) => {
				const { start, step, count, stride } = axes[d];
				const first = Math.max(0, Math.ceil((low - start) / step));
				const last = Math.min(count, Math.ceil((high - start) / step));
				at += first * stride;
				return { start: start + step * first, step, count: Math.max(0, last - first), stride };
			});
			if (parts.some(({ count }) => count === 0)) continue;
			const change =
				region.packing < 0 ? null : unpacker(packings[region.packing], /** @type {string} */ (type));
			const member = await this.member(region.member);
			await member.readInto(this.#memberAxes(region, parts), out, at, change);
		}
	}
}

class MissingMember extends MemberError {}
