import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import test from "node:test";

import Ajv2020 from "ajv/dist/2020.js";

import { vectors } from "./vectors.js";

const STANDARD = new URL("../../standard/", import.meta.url);
const json = async (path) => JSON.parse(await readFile(new URL(path, STANDARD), "utf-8"));
const schemas = await json("schemas.json");
const LISTS = ["codecs", "mask_codecs", "data_codecs", "index_codecs"];
const ajv = new Ajv2020({ strictTypes: false, strictRequired: false, formats: {} });
const compiled = new Map();

async function validator(path) {
	if (!compiled.has(path)) compiled.set(path, ajv.compile(await json(path)));
	return compiled.get(path);
}

/** Every part of a metadata document that a schema speaks about, with its schema. */
function* parts(metadata) {
	if (metadata.node_type === "group") {
		yield [schemas.group, metadata];
		return;
	}
	const type = schemas.data_types[metadata.data_type.name];
	if (type) yield [type, metadata.data_type];
	yield* codecParts(metadata.codecs);
}

function* codecParts(codecs) {
	for (const codec of Array.isArray(codecs) ? codecs : []) {
		const configuration = codec.configuration ?? {};
		const old = codec.name === "optional" && "codecs" in configuration;
		const name = old ? "conditional" : codec.name;
		if (name in schemas.codecs) yield [schemas.codecs[name], { ...codec, name }];
		for (const field of LISTS) yield* codecParts(configuration[field]);
	}
}

test("schemas accept every vector, and refuse those that are wrong by them", async () => {
	const wrong = [];
	for (const { path, refused, files } of vectors) {
		const metadata = JSON.parse(new TextDecoder().decode(files["zarr.json"]));
		let accepted = true;
		for (const [schema, part] of parts(metadata)) accepted &&= (await validator(schema))(part);
		if (accepted === (refused?.by === "schema")) wrong.push(path);
	}
	assert.deepEqual(wrong, []);
});

test("the examples of the convention are valid", async () => {
	const validate = await validator(schemas.group);
	for (const name of ["two-codecs", "holes", "packings-and-views", "table"]) {
		assert.ok(validate(await json(`logical-array/examples/${name}.json`)), name);
	}
});
