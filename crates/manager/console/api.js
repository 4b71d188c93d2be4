// The manager's interface, asked with the session's cookie.

/** What a manager refused, in its own words. */
export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function ask(method, path, body) {
  const headers = { Accept: "application/json" };
  if (path.startsWith("/vnflcm/v2/")) headers.Version = "2.0.0";
  if (body !== undefined) {
    headers["Content-Type"] = method === "PATCH" ? "application/merge-patch+json" : "application/json";
  }
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch {
    throw new Refused(0, "The manager does not answer; this page tries again.");
  }
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    throw new Refused(response.status, `The manager's answer is no JSON (${response.status}).`);
  }
  if (!response.ok) throw new Refused(response.status, answer?.detail ?? response.statusText);
  return { body: answer, link: response.headers.get("Link") };
}

export const get = async (path) => (await ask("GET", path)).body;
export const post = async (path, body) => (await ask("POST", path, body ?? {})).body;
export const patch = async (path, body) => (await ask("PATCH", path, body)).body;

/** One page of a list, and whether there are more. */
export async function list(path) {
  const { body, link } = await ask("GET", path);
  return { items: body, more: Boolean(link && link.includes('rel="next"')) };
}

/** Who is logged in, or null. */
export async function who() {
  try {
    return await get("/console/session");
  } catch (error) {
    if (error.status === 401) return null;
    throw error;
  }
}

export const login = (token) => post("/console/session", { token });
export const logout = () => ask("DELETE", "/console/session");
