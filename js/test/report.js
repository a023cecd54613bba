/**
 * What this reader makes of every vector, as JSON: null where it is what it should be, and otherwise what is wrong.
 *
 * @module
 */

import { problem } from "./compare.js";
import { FilesStore, vectors } from "./vectors.js";

/** @type {Record<string, string | null>} */
const found = {};
for (const vector of vectors) found[vector.path] = await problem(vector, new FilesStore(vector.files));
console.log(JSON.stringify(found));
