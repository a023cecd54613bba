// Checks the zarr.json of groups that are logical arrays: node validate.js FILE…
import { readFileSync } from "node:fs";

import Ajv2020 from "ajv/dist/2020.js";

const read = (path) => JSON.parse(readFileSync(path, "utf-8"));
const ajv = new Ajv2020({ allErrors: true, strictTypes: false, strictRequired: false });
const validate = ajv.compile(read(new URL("schema.json", import.meta.url)));

const paths = process.argv.slice(2);
if (paths.length === 0) console.error("usage: node validate.js FILE…");
let wrong = paths.length === 0;
for (const path of paths) {
	if (validate(read(path))) {
		console.log(`${path}: valid`);
		continue;
	}
	wrong = true;
	for (const { instancePath, message } of validate.errors) console.log(`${path}: ${instancePath || "/"}: ${message}`);
}
process.exit(wrong ? 1 : 0);
