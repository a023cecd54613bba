import assert from "node:assert/strict";
import { cp, mkdtemp, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";

import { FetchStore, slice } from "zarrita";

import { DirectoryStore } from "../src/directory.js";
import { open } from "../src/index.js";
import { parse } from "../src/json.js";
import { convert, promoted, roundHalf } from "../src/numbers.js";
import { vector, write } from "./vectors.js";

/** A vector in a directory. */
async function unpacked(t, name) {
	const folder = await mkdtemp(join(tmpdir(), "vectors-"));
	t.after(() => rm(folder, { recursive: true }));
	await write(name, folder);
	return folder;
}

/** What a selection of the expected values is, element by element. */
async function expected(name, ...axes) {
	const { shape, values } = await vector(name).expected();
	const found = [];
	const along = (axis, at) => {
		if (axis === shape.length) found.push(values[at]);
		else for (const i of axes[axis]) along(axis + 1, at * shape[axis] + i);
	};
	along(0, 0);
	return found;
}

for (const name of ["manifest-2/layers", "manifest-2/layers-in-part"]) {
	test(`every layer of ${name} holds the same`, async (t) => {
		const array = await open(new DirectoryStore(await unpacked(t, name)));
		const layers = new Set(array.manifest.replicas.map(({ layer }) => layer));
		assert.ok(layers.size > 0);
		const values = (await array.get()).data;
		for (const layer of layers) {
			array.layer = layer;
			assert.deepEqual((await array.get()).data, values);
		}
	});
}

const SELECTIONS = [
	[
		[slice(1, 6, 2), null],
		[
			[1, 3, 5],
			[0, 1, 2, 3, 4],
		],
		[3, 5],
	],
	[[3, slice(4)], [[3], [0, 1, 2, 3]], [4]],
	[[slice(null, null, 3), 2], [[0, 3, 6], [2]], [3]],
	[
		[slice(-2, null), slice(3, 3)],
		[[5, 6], []],
		[2, 0],
	],
	[[6, 4], [[6], [4]], []],
];

for (const name of ["manifest-1/edge", "manifest-2/view-reversed-both", "conditional/edge-chunks"]) {
	test(`selections of ${name}`, async (t) => {
		const array = await open(new DirectoryStore(await unpacked(t, name)));
		for (const [selection, axes, shape] of SELECTIONS) {
			const found = await array.get(selection);
			assert.deepEqual(found.shape, shape);
			assert.deepEqual(Array.from(found.data), await expected(name, ...axes));
		}
		await assert.rejects(array.get([7]), RangeError);
		await assert.rejects(array.get([slice(0, 3, -1)]), RangeError);
	});
}

/** A web server for a folder, with or without byte ranges. */
async function serving(t, folder, ranges) {
	const asked = [];
	const server = createServer(async (request, response) => {
		const bytes = await readFile(join(folder, request.url)).catch(() => null);
		if (!bytes) return response.writeHead(404).end();
		const range = ranges && /bytes=(\d+)-(\d+)/.exec(request.headers.range ?? "");
		asked.push(range ? range[0] : request.method);
		if (request.method === "HEAD") return response.writeHead(200, { "Content-Length": bytes.length }).end();
		if (!range) return response.writeHead(200).end(bytes);
		return response.writeHead(206).end(bytes.subarray(Number(range[1]), Number(range[2]) + 1));
	});
	await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
	t.after(() => server.close());
	return { url: `http://127.0.0.1:${server.address().port}`, asked };
}

for (const ranges of [true, false]) {
	test(`over HTTP, with${ranges ? "" : "out"} byte ranges`, async (t) => {
		for (const name of ["manifest-1/member-sharded", "conditional/in-shards-start", "manifest-2/table"]) {
			const { url, asked } = await serving(t, await unpacked(t, name), ranges);
			const array = await open(new FetchStore(url));
			const found = await array.get();
			const all = found.shape.map((n) => Array.from({ length: n }, (_, i) => i));
			const wanted = (await expected(name, ...all)).map((value) => (value === "NaN" ? NaN : value));
			assert.deepEqual(Array.from(found.data), wanted);
			if (ranges && name.includes("shard")) assert.ok(asked.some((what) => what.startsWith("bytes=")));
		}
	});
}

test("a shard that is cut is an error, not zeros", async (t) => {
	const folder = await unpacked(t, "conditional/in-shards-start");
	await truncate(join(folder, "c/1/0"), 110);
	await assert.rejects(
		open(new DirectoryStore(folder)).then((array) => array.get()),
		{ name: "ChunkError" },
	);
});

test("a layout that somebody replaced meanwhile is read anew", async (t) => {
	const folder = await unpacked(t, "manifest-1/one-region");
	const array = await open(new DirectoryStore(folder));
	const before = await array.get();
	await cp(join(folder, "m-0"), join(folder, "m-1"), { recursive: true });
	await rm(join(folder, "m-0"), { recursive: true });
	await assert.rejects((await open(new DirectoryStore(folder))).get(), { name: "MemberError" });
	const group = JSON.parse(await readFile(join(folder, "zarr.json"), "utf-8"));
	group.attributes.intarsia.members = ["m-1"];
	group.attributes.intarsia.generation += 1;
	await writeFile(join(folder, "zarr.json"), JSON.stringify(group));
	assert.deepEqual(await array.get(), before);
	assert.equal(array.manifest.generation, group.attributes.intarsia.generation);
});

test("integers in JSON keep all their digits, and texts stay texts", () => {
	const text =
		'{"a": [9007199254740993, -9223372036854775808, 12], "b": "9007199254740993", "c": 1e20, "d": "\\"1234567890123456789"}';
	assert.deepEqual(parse(text), {
		...{
			a: [9007199254740993n, -9223372036854775808n, 12],
			b: "9007199254740993",
			c: 1e20,
			d: '"1234567890123456789',
		},
	});
});

test("numbers round once, to the nearest, ties to even", () => {
	assert.equal(roundHalf(2049), 2048);
	assert.equal(roundHalf(-2051), -2052);
	assert.equal(roundHalf(65519.99), 65504);
	assert.equal(roundHalf(65520), Infinity);
	assert.equal(roundHalf(2 ** -25), 0);
	assert.equal(roundHalf(2 ** -25 * 1.001), 2 ** -24);
	assert.ok(Object.is(roundHalf(-(2 ** -30)), -0));
	assert.equal(convert(2n ** 62n + 2n ** 38n + 1n, "float32"), Math.fround(2 ** 62 + 2 ** 39));
	assert.equal(convert(-129n, "int8"), 127);
	assert.deepEqual(
		[
			["float16", "int8"],
			["float32", "int16"],
			["float32", "int32"],
			["uint32", "int8"],
			["uint64", "int64"],
		].map(([a, b]) => promoted(a, b)),
		["float16", "float32", "float64", "int64", "float64"],
	);
});
