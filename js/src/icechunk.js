/**
 * Icechunk repositories, read-only, through the npm package `@earthmover/icechunk`.
 *
 * The package comes as native code, and as WebAssembly, which knows no file systems and no networks. So objects of
 * a repository are got here, by any store that zarrita takes: a directory, or a web server.
 *
 * ```js
 * import * as icechunk from "@earthmover/icechunk";
 * import { DirectoryStore } from "intarsia-js/directory";
 * import { repositoryStore } from "intarsia-js/icechunk";
 *
 * const store = await repositoryStore(icechunk, new DirectoryStore("data/repository"), { branch: "main" });
 * const array = await open(store, "/temperature");
 * ```
 *
 * @module
 */

/**
 * @typedef {import("./array.js").Store} Store
 * @typedef {{ branch?: string, tag?: string, snapshotId?: string }} Version
 */

const refuse = async () => {
	throw new Error("this repository is open for reading only");
};

/**
 * The storage of a repository whose objects a store holds.
 *
 * @param {any} icechunk the module
 * @param {Store} objects
 */
function storageOf(icechunk, objects) {
	const whole = async (/** @type {string} */ path) => {
		const data = await objects.get(`/${path}`);
		if (!data) throw new Error(`ObjectNotFound: ${path}`);
		return new Uint8Array(data);
	};
	return icechunk.Storage.newCustom({
		canWrite: async () => false,
		getObjectRange: async (/** @type {any} */ _, /** @type {any} */ { path, rangeStart, rangeEnd }) => {
			const data = await whole(path);
			return { data: data.slice(rangeStart ?? 0, rangeEnd ?? data.length), version: {} };
		},
		getObjectConditional: async (/** @type {any} */ _, /** @type {any} */ { path }) => ({
			...{ kind: "modified", data: await whole(path), newVersion: {} },
		}),
		getObjectLastModified: refuse,
		listObjects: async () => [],
		putObject: refuse,
		copyObject: refuse,
		deleteBatch: refuse,
	});
}

/**
 * The Zarr store of one version of a repository.
 *
 * @param {any} icechunk the module `@earthmover/icechunk`
 * @param {Store} objects where the repository's objects are
 * @param {Version} [version] a branch (`main` if nothing is said), a tag or a snapshot
 * @returns {Promise<Store>}
 */
export async function repositoryStore(icechunk, objects, version = { branch: "main" }) {
	const repository = await icechunk.Repository.open(storageOf(icechunk, objects));
	const { store } = await repository.readonlySession(version);
	const key = (/** @type {string} */ path) => path.replace(/^\//, "");
	return {
		get: async (path) => (await store.get(key(path))) ?? undefined,
		getRange: async (path, range) => (await store.getRange(key(path), range)) ?? undefined,
	};
}
