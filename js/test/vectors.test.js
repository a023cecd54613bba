import assert from "node:assert/strict";
import test from "node:test";

import { problem } from "./compare.js";
import { FilesStore, vectors } from "./vectors.js";

for (const family of new Set(vectors.map((vector) => vector.path.split("/")[0]))) {
	test(`vectors of ${family}`, async () => {
		const found = {};
		for (const vector of vectors.filter(({ path }) => path.startsWith(`${family}/`))) {
			const wrong = await problem(vector, new FilesStore(vector.files));
			if (wrong) found[vector.path] = wrong;
		}
		assert.deepEqual(found, {});
	});
}
