// A user's profile as a JSON document, with node-redis: several forms edit it at once, and each sends its part alone.
//
//   node profile.js      a story: two forms are saved, a field is removed, a switch is turned
//
//   profile:<user>   {"name", "address": {"street", "city"}, "settings": {"newsletter", "theme"}}
"use strict";

const { createClient } = require("redis");

class Profiles {
  constructor(redis) {
    this.redis = redis;
  }

  key(user) {
    return `profile:${user}`;
  }

  // A profile with its defaults; one that is there stays.
  create(user, name) {
    const settings = { newsletter: true, theme: "light" };
    return this.redis.json.set(this.key(user), "$", { name, address: {}, settings }, { condition: "NX" });
  }

  // The fields of a form: null removes one, all others of the profile stay.
  save(user, fields) {
    return this.redis.json.merge(this.key(user), "$", fields);
  }

  async toggleNewsletter(user) {
    const [now] = await this.redis.json.toggle(this.key(user), "$.settings.newsletter");
    return now;
  }

  // One part of the document, so that a page does not fetch what it does not show.
  async part(user, path) {
    const [value] = await this.redis.json.get(this.key(user), { path });
    return value;
  }
}

async function main() {
  const url = process.env.DUNLIN_URL ?? "redis://127.0.0.1:6379";
  const redis = createClient({ url, socket: { reconnectStrategy: false } });
  redis.on("error", () => {});
  try {
    await redis.connect();
  } catch (error) {
    const reason = error.errors?.[0]?.message ?? error.message;
    console.error(`no server: ${reason}. Start one (make run), or name one in DUNLIN_URL.`);
    process.exit(1);
  }
  const profiles = new Profiles(redis);
  await redis.del(profiles.key("ann"));
  await profiles.create("ann", "Ann");
  await Promise.all([
    profiles.save("ann", { address: { street: "Main Street 7", city: "Ghent" } }),
    profiles.save("ann", { settings: { theme: "dark" } }),
  ]);
  await profiles.save("ann", { address: { street: null } });
  await profiles.toggleNewsletter("ann");
  console.log("address:", JSON.stringify(await profiles.part("ann", "$.address")));
  console.log("settings:", JSON.stringify(await profiles.part("ann", "$.settings")));
  await redis.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
