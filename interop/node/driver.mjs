// node-redlock, driven line by line by Tenure's tests. interop/src/peer.rs describes the requests.

import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const Redis = require("ioredis");
const Redlock = require("redlock").default;

const answer = (id, fields) => process.stdout.write(JSON.stringify({ id, ...fields }) + "\n");

/** A client of node-redlock on one server. */
class Peer {
  constructor(url, lease) {
    this.redis = new Redis(url);
    this.redlock = new Redlock([this.redis]);
    // An error of one attempt is emitted here too; without a listener it would end the process.
    this.redlock.on("error", () => {});
    this.lease = Number(lease);
    this.owners = new Map();
  }

  owner(name) {
    if (!this.owners.has(name)) this.owners.set(name, { locks: new Map(), work: Promise.resolve() });
    return this.owners.get(name);
  }

  async serve(owner, verb, key, rest) {
    const lock = owner.locks.get(key);
    const acquire = async (retryCount) => {
      owner.locks.set(key, await this.redlock.acquire([key], this.lease, { retryCount }));
    };
    switch (verb) {
      case "acquire":
        await acquire(-1);
        return null;
      case "try":
        return acquire(0).then(() => true, () => false);
      case "release":
        await lock.release();
        return null;
      case "extend":
        owner.locks.set(key, await lock.extend(this.lease));
        return true;
      case "state":
        return lock !== undefined && lock.expiration > Date.now() ? 1 : 0;
      case "count":
        return this.count(owner, key, ...rest);
      default:
        throw new Error(`no such verb: ${verb}`);
    }
  }

  /**
   * Increments by reading and then writing, so that two holders at a time lose an increment. Returns the longest wait
   * in ms.
   */
  async count(owner, key, counter, turns) {
    let longest = 0;
    for (let turn = 0; turn < Number(turns); turn++) {
      const asked = performance.now();
      await this.serve(owner, "acquire", key, []);
      longest = Math.max(longest, performance.now() - asked);
      try {
        await this.redis.set(counter, Number((await this.redis.get(counter)) ?? 0) + 1);
      } finally {
        await this.serve(owner, "release", key, []);
      }
    }
    return Math.round(longest);
  }
}

const peers = new Map();

for await (const line of createInterface({ input: process.stdin })) {
  const [number, verb, client, ...rest] = line.split(" ");
  const id = Number(number);
  if (verb === "open") {
    peers.set(client, new Peer(...rest));
    answer(id, { value: "" });
  } else if (verb === "close") {
    peers.get(client).redis.disconnect();
    peers.delete(client);
    answer(id, { value: null });
  } else {
    const [name, , key, ...words] = rest;
    const peer = peers.get(client);
    const owner = peer.owner(name);
    // Serves the requests of an owner one at a time, in order.
    owner.work = owner.work
      .then(() => peer.serve(owner, verb, key, words))
      .then(
        (value) => answer(id, { value }),
        (error) => answer(id, { error: error.constructor.name, message: String(error.message) }),
      );
  }
}
// Ends the process although requests still wait for locks.
process.exit(0);
