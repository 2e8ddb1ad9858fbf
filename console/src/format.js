// Numbers and times for people. All times are UTC, as in the server log and in the sentences of RECORDER WHY.

export function count(number) {
  if (number === null || number === undefined || Number.isNaN(Number(number))) return "–";
  const value = Number(number);
  if (Math.abs(value) >= 1e9) return (value / 1e9).toFixed(2) + " G";
  if (Math.abs(value) >= 1e7) return (value / 1e6).toFixed(1) + " M";
  return Math.round(value).toLocaleString("en-US");
}

/** A count with its noun: `1 key`, `2 keys`. */
export function plural(number, noun, many = noun + "s") {
  return `${count(number)} ${Number(number) === 1 ? noun : many}`;
}

/** A rate: small ones with a decimal. */
export function rate(number) {
  return number > 0 && number < 9.95 ? number.toFixed(1) : count(number);
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let value = Number(bytes);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(value) < 1024) return (unit === "B" ? Math.round(value) : value.toFixed(value < 10 && value % 1 ? 2 : value % 1 ? 1 : 0)) + " " + unit;
    value /= 1024;
  }
  return value.toFixed(1) + " TiB";
}

/** Microseconds. */
export function latency(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return (us < 10 ? Number(us.toFixed(1)) : Math.round(us)) + " µs";
  if (us < 1e6) return Number((us / 1000).toFixed(us < 1e5 ? 1 : 0)) + " ms";
  return Number((us / 1e6).toFixed(1)) + " s";
}

export function duration(seconds) {
  const value = Math.floor(Number(seconds));
  if (value < 60) return value + " s";
  if (value < 3600) return Math.floor(value / 60) + " min" + (value % 60 ? ` ${value % 60} s` : "");
  if (value < 86400) return Math.floor(value / 3600) + " h" + (value % 3600 >= 60 ? ` ${Math.floor((value % 3600) / 60)} min` : "");
  return Math.floor(value / 86400) + " d" + (value % 86400 >= 3600 ? ` ${Math.floor((value % 86400) / 3600)} h` : "");
}

/** A time to live in milliseconds; -1 for none. */
export function ttl(ms) {
  return ms < 0 ? "no expiry" : ms < 1000 ? ms + " ms" : duration(ms / 1000);
}

/** The same in a sentence, with the moment. */
export function ttlWords(ms) {
  return ms < 0 ? "no expiry" : `expires in ${ttl(ms)}, at ${date(Date.now() + ms)}`;
}

export function clock(ms) {
  return date(ms).slice(11);
}

export function date(ms) {
  return Number.isFinite(ms) && Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString().slice(0, 19).replace("T", " ") : "–";
}

export function percent(part) {
  return Number.isFinite(part) ? (part * 100).toFixed(part > 0.995 && part < 1 ? 2 : 1) + "%" : "–";
}

/** The lines of INFO, by name. */
export function info(text) {
  const out = {};
  for (const row of text.split("\r\n")) {
    const at = row.indexOf(":");
    if (at > 0 && row[0] !== "#") out[row.slice(0, at)] = row.slice(at + 1);
  }
  return out;
}
