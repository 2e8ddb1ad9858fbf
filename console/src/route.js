// The state of a page in its address, `#/keys?db=3&key=user%3A1`: a link leads to what was seen, and Back goes back. Before a
// text that is not saved is left, the user is asked.
import { useEffect, useReducer } from "preact/hooks";
import { update } from "./session.js";

/** The page, and what its address says more. */
export function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path, params: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a page. Empty parameters are left out. */
export function address(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  return `#/${path}${String(query) && `?${query}`}`;
}

/** The route; the component is drawn anew when it changes. */
export function useRoute() {
  const [, draw] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    addEventListener("hashchange", draw);
    addEventListener("route", draw);
    return () => {
      removeEventListener("hashchange", draw);
      removeEventListener("route", draw);
    };
  }, []);
  return route();
}

/** Changes parameters of the page's address: a new place, or the same one described better. */
export function setParams(changed, isPlace = false) {
  const { path, params } = route();
  const next = address(path, { ...params, ...changed });
  if (next === location.hash) return;
  if (isPlace) location.hash = next;
  else {
    history.replaceState(null, "", next);
    dispatchEvent(new Event("route"));
  }
}

const unsaved = new Map();

/** Says that a component has a text that is not saved. */
export function useUnsaved(what, is) {
  useEffect(() => {
    if (!is) return undefined;
    const id = Symbol(what);
    unsaved.set(id, what);
    return () => unsaved.delete(id);
  }, [what, is]);
}

/** Goes on at once, or after the user has agreed to lose what is not saved. */
export function leave(then) {
  if (unsaved.size === 0) return then();
  const what = [...new Set(unsaved.values())].join(", ");
  update({
    leaving: {
      what,
      yes() {
        unsaved.clear();
        update({ leaving: null });
        then();
      },
    },
  });
}

addEventListener("beforeunload", (event) => {
  if (unsaved.size > 0) event.preventDefault();
});

/** Registered before any listener of a page: a change of the address waits for the answer. */
addEventListener("hashchange", (event) => {
  if (unsaved.size === 0) return;
  event.stopImmediatePropagation();
  const wanted = location.hash;
  history.pushState(null, "", event.oldURL);
  leave(() => (location.hash = wanted));
});
