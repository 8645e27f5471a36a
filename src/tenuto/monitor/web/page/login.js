// The view of a person who is not logged in: a code from the address is used at once, or one is pasted.
// It keeps no code: the address is cleared before the server answers.

import { login, Refused } from "./api.js";
import { h, put, say } from "./dom.js";

/**
 * @param {HTMLElement} main
 * @param {string} code
 * @param {(next: string) => void} enter
 */
export async function loginView(main, code, enter) {
  const wanted = location.hash.startsWith("#/") ? location.hash : "#/";
  const trouble = h("p", { class: "trouble", role: "alert" });
  const input = h("input", { id: "code", name: "code", autocomplete: "off", spellcheck: "false", required: true });
  /** @param {string} given */
  const attempt = async (given) => {
    try {
      await login(given.slice(given.lastIndexOf("=") + 1).trim());
      enter(wanted);
    } catch (error) {
      say(trouble, error instanceof Refused && error.status === 401
        ? "This code is not valid: it was used before, or is older than ten minutes."
        : error instanceof Error ? error.message : error);
      input.focus();
    }
  };
  const form = h(
    "form",
    {
      class: "card login",
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        void attempt(input.value);
      },
    },
    h("label", { for: "code" }, "Code or link"),
    input,
    h("button", { type: "submit", class: "primary" }, "Log in"),
    trouble,
    h("p", { class: "soft" }, "A link works once, for ten minutes. For a new one, on the machine where the server runs:"),
    h("pre", {}, "tenuto ui --login"),
  );
  document.title = "Log in · Tenuto";
  put(main, h("h1", {}, "Log in"), form);
  if (code) {
    history.replaceState(null, "", "#/");
    await attempt(code);
  } else input.focus();
}
