/**
 * The manifest of a logical array, read and checked.
 *
 * @module
 */

import { MetadataError, valid } from "./errors.js";
import { holdsKind, packingOf, parseKind } from "./packing.js";
import { NUMBERS } from "./numbers.js";
import { parseFill, parseType } from "./types.js";

/**
 * @typedef {import("./packing.js").Packing} Packing
 *
 * @typedef {object} Region
 * @property {number} member
 * @property {number[]} start in logical chunks, as all three
 * @property {number[]} stop
 * @property {number[]} memberStart
 * @property {number} packing number of its packing, or -1
 * @property {number} view number of its view, or -1
 * @property {number} layer 0, or that of a replica
 *
 * @typedef {{ source: number | null, offset: number, stride: number }} MemberAxis
 *
 * @typedef {object} Manifest
 * @property {number} version
 * @property {number} generation
 * @property {number[]} shape
 * @property {number[]} chunkShape
 * @property {import("./types.js").DataType} type
 * @property {any} fill
 * @property {(string | null)[] | null} dimensionNames
 * @property {string[]} members
 * @property {Region[]} regions those of layer 0, which say what the array holds
 * @property {Region[]} replicas those of other layers, which hold some of it once more
 * @property {Packing[]} packings
 * @property {MemberAxis[][]} views
 *
 * @typedef {(name: string, width: number, most: number) => Promise<bigint[][]>} TableReader
 */

const NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,255}$/;
const FIELDS = [
	"version",
	"generation",
	"shape",
	"chunk_shape",
	"data_type",
	"fill_value",
	"dimension_names",
	"members",
	"regions",
];
const COLUMNS = ["member", "start", "stop", "member_start"];
const MORE_COLUMNS = ["packing", "view", "layer"];
const MOST_REGIONS = 10_000_000;
const MOST_LAYERS = 64;

/**
 * Positions stay below 2^62 in the format. This reader counts with Numbers, and refuses what they do not hold.
 */
const FARTHEST = Number.MAX_SAFE_INTEGER;

/** @type {(value: any, least?: number) => boolean} */
const isInteger = (value, least = 0) => Number.isSafeInteger(value) && value >= least;

/**
 * @param {string} where
 * @param {any} object
 * @param {string[]} required
 * @param {string[]} optional
 */
function checkObject(where, object, required, optional = []) {
	valid(object !== null && typeof object === "object" && !Array.isArray(object), `${where} is no object`);
	for (const name of required) valid(Object.hasOwn(object, name), `${where}: ${name} is missing`);
	for (const name of Object.keys(object))
		valid([...required, ...optional].includes(name), `${where}: ${name} is not known`);
}

/**
 * @param {any} document
 * @param {TableReader} readTable
 * @returns {Promise<Manifest>}
 */
export async function parseManifest(document, readTable) {
	const version = document?.version;
	if (isInteger(version) && version !== 1 && version !== 2) {
		throw new MetadataError(`the manifest has version ${version}; 1 and 2 are read here`);
	}
	checkObject("manifest", document, FIELDS, version === 2 ? ["packings", "views"] : []);
	valid(version === 1 || version === 2, `version: ${version}`);
	const { shape, chunk_shape: chunkShape, members, dimension_names: names } = document;
	valid(isInteger(document.generation), `generation: ${document.generation}`);
	valid(Array.isArray(shape) && shape.every((n) => isInteger(n)), `shape: ${shape}`);
	const lattice =
		Array.isArray(chunkShape) &&
		chunkShape.every((n) => isInteger(n, 1)) &&
		chunkShape.length === shape.length;
	valid(lattice, `chunk_shape: ${chunkShape}`);
	valid(
		shape.reduce((size, n) => size * n, 1) <= FARTHEST,
		`shape: ${shape} has more elements than can be counted`,
	);
	const named =
		names === null ||
		(Array.isArray(names) &&
			names.length === shape.length &&
			names.every((n) => n === null || typeof n === "string"));
	valid(named, `dimension_names: ${names}`);
	valid(
		Array.isArray(members) && members.every((name) => typeof name === "string" && NAME.test(name)),
		"members: not names of one path segment",
	);
	valid(new Set(members).size === members.length, "members: a name is listed twice");
	const type = parseType(document.data_type);
	const { regions: every, table } = await parseRegions(document, readTable);
	const regions = every.filter(({ layer }) => layer === 0);
	const replicas = every.filter(({ layer }) => layer !== 0);
	/** @type {Manifest} */
	const manifest = {
		...{ version, generation: document.generation, shape, chunkShape, type, members, regions, replicas },
		fill: parseFill(type, document.fill_value),
		dimensionNames: names,
		packings: document.packings === undefined ? [] : parsePackings(document.packings, table),
		views: document.views === undefined ? [] : parseViews(document.views),
	};
	checkRegions(manifest);
	return manifest;
}

/**
 * @param {any} document
 * @param {TableReader} readTable
 * @returns {Promise<{ regions: Region[], table: bigint[][] | null }>}
 */
async function parseRegions({ version, shape, chunk_shape: chunkShape, regions }, readTable) {
	const ndim = shape.length;
	if (typeof regions === "string") {
		valid(NAME.test(regions), `regions: ${regions} is no name of one path segment`);
		const cells = shape.reduce(
			(/** @type {number} */ n, /** @type {number} */ s, /** @type {number} */ i) =>
				n * Math.ceil(s / chunkShape[i]),
			1,
		);
		const table = await readTable(
			regions,
			1 + 3 * ndim + (version === 2 ? 6 : 0),
			Math.min(version === 2 ? cells * MOST_LAYERS : cells, MOST_REGIONS),
		);
		const rows = table.map((row) => row.slice(0, 1 + 3 * ndim + (version === 2 ? 3 : 0)).map(Number));
		return {
			table,
			regions: rows.map((row) => regionOf(row[0], row.slice(1, 1 + 3 * ndim), row.slice(1 + 3 * ndim), ndim)),
		};
	}
	checkObject("regions", regions, COLUMNS, version === 2 ? MORE_COLUMNS : []);
	const count = Array.isArray(regions.member) ? regions.member.length : -1;
	for (const [name, column] of Object.entries(regions)) {
		const corners = name === "start" || name === "stop" || name === "member_start";
		const fits = (/** @type {any} */ entry) =>
			corners
				? Array.isArray(entry) && entry.length === ndim && entry.every((n) => isInteger(n))
				: Number.isSafeInteger(entry);
		valid(
			Array.isArray(column) && column.length === count && column.every(fits),
			`regions.${name}: not ${count} entries`,
		);
	}
	const { member, start, stop, member_start: memberStart, packing, view, layer } = regions;
	const more = (/** @type {number} */ i) => [packing?.[i] ?? -1, view?.[i] ?? -1, layer?.[i] ?? 0];
	const found = member.map((/** @type {number} */ m, /** @type {number} */ i) =>
		regionOf(m, [...start[i], ...stop[i], ...memberStart[i]], more(i), ndim),
	);
	return { regions: found, table: null };
}

/**
 * @param {number} member
 * @param {number[]} corners
 * @param {number[]} more
 * @param {number} ndim
 * @returns {Region}
 */
function regionOf(member, corners, [packing = -1, view = -1, layer = 0], ndim) {
	valid(
		isInteger(layer) && layer < MOST_LAYERS,
		`regions: layer ${layer}: they are numbered from 0 to ${MOST_LAYERS - 1}`,
	);
	const [start, stop, memberStart] = [0, 1, 2].map((i) => corners.slice(i * ndim, (i + 1) * ndim));
	return { member, start, stop, memberStart, packing, view, layer };
}

/**
 * @param {any} json
 * @param {bigint[][] | null} table
 * @returns {Packing[]}
 */
function parsePackings(json, table) {
	checkObject("packings", json, table ? ["kinds", "count"] : ["kinds", "kind", "scale", "offset"]);
	valid(Array.isArray(json.kinds), "packings.kinds is no list");
	const kinds = json.kinds.map((/** @type {any} */ kind, /** @type {number} */ i) =>
		parseKind(kind, `packings.kinds[${i}]`),
	);
	const spelled = json.kinds.map((/** @type {any} */ kind) =>
		FIELDS_OF_KIND.map((name) => String(JSON.stringify(kind[name], exact))).join(),
	);
	valid(new Set(spelled).size === spelled.length, "packings.kinds: one is listed twice");
	const { kind, scale, offset } = table ? fromTable(table, json.count) : json;
	valid(Array.isArray(kind) && kind.length > 0, "packings.kind is no list of packings");
	valid(
		[scale, offset].every((column) => Array.isArray(column) && column.length === kind.length),
		"packings: columns of different lengths",
	);
	valid(
		kind.every((k) => isInteger(k) && k < kinds.length),
		"packings.kind: one is not listed",
	);
	valid(new Set(kind).size === kinds.length, "packings.kinds: one is used by no packing");
	return kind.map((k, i) => {
		/** @type {(value: any, type: string | null) => bigint | null} */
		const bits = (value, type) => {
			if (typeof value !== "bigint") return parseText(value, type, `packings, row ${i}`);
			return type === null && value === 0n ? null : BigInt.asUintN(64, value);
		};
		const given = { scale: bits(scale[i], kinds[k].scale), offset: bits(offset[i], kinds[k].offset) };
		return packingOf(kinds[k], given, `packings, row ${i}`);
	});
}

const FIELDS_OF_KIND = ["stored", "unsigned", "values", "missing", "scale", "offset"];
const exact = (/** @type {string} */ _, /** @type {any} */ value) =>
	typeof value === "bigint" ? `${value}` : value;

/**
 * @param {any} text
 * @param {string | null} type
 * @param {string} where
 */
function parseText(text, type, where) {
	if (text === null) return null;
	const digits = type === null ? 0 : 2 * NUMBERS[type].bytes;
	const spelled = typeof text === "string" && new RegExp(`^0x[0-9a-fA-F]{${digits}}$`).test(text);
	valid(spelled, `${where}: ${text} is not 0x and ${digits} hexadecimal digits`);
	return BigInt(text);
}

/**
 * The columns of packings that stand beside the regions.
 *
 * @param {bigint[][]} table
 * @param {any} count
 */
function fromTable(table, count) {
	valid(
		isInteger(count, 1) && count <= table.length,
		`packings.count: ${count} in a table of ${table.length} rows`,
	);
	const rows = table.slice(0, count).map((row) => row.slice(-3));
	return {
		kind: rows.map((row) => Number(row[0])),
		scale: rows.map((row) => row[1]),
		offset: rows.map((row) => row[2]),
	};
}

/**
 * @param {any} json
 * @returns {MemberAxis[][]}
 */
function parseViews(json) {
	valid(Array.isArray(json), "views is no list");
	return json.map((view, number) => {
		const where = `views[${number}]`;
		checkObject(where, view, ["input_rank", "output"]);
		valid(isInteger(view.input_rank) && view.input_rank <= 64, `${where}.input_rank: ${view.input_rank}`);
		valid(Array.isArray(view.output) && view.output.length <= 64, `${where}.output is no list of axes`);
		const axes = view.output.map((/** @type {any} */ entry) => {
			checkObject(`${where}.output`, entry, [], ["offset", "stride", "input_dimension"]);
			const { offset = 0, stride = 1, input_dimension: source = null } = entry;
			valid(
				Number.isSafeInteger(offset) && (stride === 1 || stride === -1),
				`${where}.output: offset ${offset}, stride ${stride}`,
			);
			valid(
				source === null ? !("stride" in entry) && offset >= 0 : isInteger(source) && source < view.input_rank,
				`${where}.output: ${JSON.stringify(entry)}`,
			);
			return { source, offset, stride };
		});
		const used = axes
			.map((/** @type {MemberAxis} */ axis) => axis.source)
			.filter((/** @type {any} */ source) => source !== null);
		valid(new Set(used).size === used.length, `${where}: an axis is followed twice`);
		return Object.assign(axes, { rank: view.input_rank });
	});
}

/**
 * @param {string} what
 * @param {number[]} numbers
 * @param {number} count
 * @param {number} least
 */
function checkNumbers(what, numbers, count, least) {
	valid(
		numbers.every((n) => Number.isSafeInteger(n) && n >= least && n < count),
		`regions: a ${what} that is not listed`,
	);
	valid(new Set(numbers.filter((n) => n >= 0)).size === count, `regions: a ${what} that no region uses`);
}

/** @param {Manifest} manifest */
function checkRegions({ shape, chunkShape, type, members, regions: authority, replicas, packings, views }) {
	const regions = [...authority, ...replicas];
	checkNumbers(
		"member",
		regions.map((r) => r.member),
		members.length,
		0,
	);
	checkNumbers(
		"packing",
		regions.map((r) => r.packing),
		packings.length,
		-1,
	);
	checkNumbers(
		"view",
		regions.map((r) => r.view),
		views.length,
		-1,
	);
	for (const { kind } of packings)
		valid(holdsKind(type, kind), `packings: the array cannot hold values of ${kind.values}`);
	regions.forEach(({ start, stop, memberStart, view }, row) => {
		shape.forEach((length, axis) => {
			const size = chunkShape[axis];
			valid(
				isInteger(start[axis]) && isInteger(memberStart[axis]),
				`regions, row ${row}: a corner that cannot be`,
			);
			valid(stop[axis] > start[axis], `regions, row ${row}: stop is not above start`);
			valid(stop[axis] <= Math.ceil(length / size), `regions, row ${row}: it reaches beyond the array`);
			valid(
				(memberStart[axis] + stop[axis] - start[axis]) * size <= FARTHEST,
				`regions, row ${row}: too far out to be counted`,
			);
		});
		if (view >= 0) checkView(views[view], { shape, chunkShape }, regions[row], `regions, row ${row}`);
	});
	checkOverlap(authority, shape.length);
	for (const layer of new Set(replicas.map((replica) => replica.layer))) {
		checkOverlap(
			replicas.filter((replica) => replica.layer === layer),
			shape.length,
		);
	}
	for (const { start, stop } of replicas) {
		let left = [{ start, stop }];
		for (const region of authority) left = left.flatMap((box) => without(box, region));
		valid(left.length === 0, "regions: a replica of what layer 0 does not cover");
	}
}

/**
 * The same numbers, with another one at one place.
 * @param {number[]} numbers
 * @param {number} at
 * @param {number} value
 */
function replaced(numbers, at, value) {
	return numbers.map((number, i) => (i === at ? value : number));
}

/**
 * The parts of a box that another one does not cover.
 *
 * @param {{ start: number[], stop: number[] }} box
 * @param {{ start: number[], stop: number[] }} hole
 * @returns {{ start: number[], stop: number[] }[]}
 */
export function without({ start, stop }, hole) {
	if (start.some((s, d) => s >= hole.stop[d] || stop[d] <= hole.start[d])) return [{ start, stop }];
	const parts = [];
	let [low, high] = [start, stop];
	for (let d = 0; d < start.length; d++) {
		if (low[d] < hole.start[d]) parts.push({ start: low, stop: replaced(high, d, hole.start[d]) });
		if (high[d] > hole.stop[d]) parts.push({ start: replaced(low, d, hole.stop[d]), stop: high });
		low = replaced(low, d, Math.max(low[d], hole.start[d]));
		high = replaced(high, d, Math.min(high[d], hole.stop[d]));
	}
	return parts;
}

/**
 * @param {MemberAxis[]} view
 * @param {{ shape: number[], chunkShape: number[] }} array
 * @param {Region} region
 * @param {string} where
 */
function checkView(view, { shape, chunkShape }, { start, stop, memberStart }, where) {
	valid(/** @type {any} */ (view).rank === shape.length, `${where}: its view is of another rank`);
	for (let axis = 0; axis < shape.length; axis++) {
		if (view.some(({ source }) => source === axis)) continue;
		const fits = chunkShape[axis] === 1 && stop[axis] - start[axis] === 1 && memberStart[axis] === 0;
		valid(fits, `${where}: axis ${axis} is new, and has to be one long`);
	}
	for (const { source, offset, stride } of view) {
		if (source === null) continue;
		const size = chunkShape[source];
		const first = memberStart[source] * size;
		const last = first + Math.min(stop[source] * size, shape[source]) - start[source] * size - 1;
		const ends = [offset + stride * first, offset + stride * last];
		valid(
			ends.every((end) => end >= 0 && end < FARTHEST),
			`${where}: it looks where no member can be`,
		);
	}
}

/**
 * @param {Region[]} regions
 * @param {number} ndim
 */
function checkOverlap(regions, ndim) {
	if (ndim === 0) {
		valid(regions.length < 2, "two regions overlap");
		return;
	}
	/** @type {Region[]} */
	let open = [];
	for (const region of [...regions].sort((a, b) => a.start[0] - b.start[0])) {
		open = open.filter((other) => other.stop[0] > region.start[0]);
		for (const other of open) {
			const apart = region.start.some((s, i) => s >= other.stop[i] || region.stop[i] <= other.start[i]);
			valid(apart, "two regions overlap");
		}
		open.push(region);
	}
}
