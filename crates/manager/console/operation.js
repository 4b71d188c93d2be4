// One operation with its plans, drawn again with every change that the manager tells of.

import { get, post } from "/console/api.js";
import { badge, el, facts, fill, short, span, time } from "/console/dom.js";

const SIGNS = {
  pending: "·", running: "▸", unknown: "?", waiting: "↻", succeeded: "✓", failed: "✗", blocked: "!",
  stopped: "■", undoing: "◂", undone: "↩",
};

/** Shows the page and keeps it fresh until it is left. */
export async function operation(id, content, context) {
  const path = `/vnflcm/v2/vnf_lcm_op_occs/${encodeURIComponent(id)}`;
  const plans = new Map();
  let state = await get(`/guywire/v1/operations/${encodeURIComponent(id)}/plan`);
  let record = await get(path);
  if (context.isLeft()) return null;
  for (const plan of state.plans) plans.set(plan.id, { plan, at: Date.now() });
  let problem = null;
  let asked = false;

  const draw = () => fill(content, ...page(state.operation, record, [...plans.values()], { ask, problem, me: context.me }));
  const ask = async (task, body) => {
    try {
      problem = null;
      await post(`${path}/${task}`, body);
      follow();
    } catch (error) {
      problem = error.message;
      draw();
    }
  };

  let stream = null;
  const follow = () => {
    stream?.close();
    stream = new EventSource(`/guywire/v1/operations/${encodeURIComponent(id)}/events`);
    stream.addEventListener("operation", async (event) => {
      state = { ...state, operation: JSON.parse(event.data) };
      soon();
      record = await get(path).catch(() => record);
      soon();
    });
    stream.addEventListener("plan", (event) => {
      const plan = JSON.parse(event.data);
      const known = plans.get(plan.id);
      // A new connection tells of the plan from its beginning: what is known already stays until it is caught up with.
      if (!known || plan.cursor >= known.plan.cursor) plans.set(plan.id, { plan, at: Date.now() });
      soon();
    });
    stream.addEventListener("end", () => stream.close());
  };
  const soon = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
  // Running tasks take longer while nothing is told.
  const clock = setInterval(() => {
    if ([...plans.values()].some(({ plan }) => plan.tasks.some((task) => task.state === "running"))) soon();
  }, 1000);
  context.onLeave(() => {
    stream?.close();
    clearInterval(clock);
  });
  draw();
  follow();
  return null;
}

function page(operation, record, plans, { ask, problem, me }) {
  const links = record._links ?? {};
  const button = (name, label, task, body, danger) => {
    if (!links[name] || me.role === "reader") return null;
    const click = (event) => {
      event.target.disabled = true;
      ask(task, body);
    };
    return el("button", { type: "button", class: danger ? "danger" : null, "data-key": task + label, on: { click } }, label);
  };
  const changes = record.resourceChanges?.affectedVnfcs ?? [];
  return [
    el("p", { class: "crumb" }, el("a", { href: "#/operations" }, "Operations")),
    el("h1", {}, operation.operation, " ", badge(operation.operationState)),
    operation.error ? el("p", { class: "problem", role: "alert" }, operation.error.detail) : null,
    problem ? el("p", { class: "problem", role: "alert" }, problem) : null,
    facts([
      ["Id", el("span", { class: "mono" }, operation.id)],
      ["Instance", el("a", { href: `#/instances/${operation.vnfInstanceId}` }, short(operation.vnfInstanceId))],
      ["Started", time(operation.startTime)],
      ["In this state since", time(operation.stateEnteredTime)],
      ["Cancel", operation.isCancelPending ? "asked for" : null],
      ["Changes", changes.map((one) => `${one.changeType} ${one.id}`).join(", ")],
      ["Warnings", (record.warnings ?? []).join("; ")],
    ]),
    el("div", { class: "actions" },
      button("retry", "Retry", "retry", {}),
      button("rollback", "Roll back", "rollback", {}),
      button("fail", "Give up", "fail", {}, true),
      button("cancel", "Cancel", "cancel", { cancelMode: "GRACEFUL" }),
      button("cancel", "Cancel at once", "cancel", { cancelMode: "FORCEFUL" }, true)),
    el("h2", {}, plans.length === 1 ? "Plan" : "Plans"),
    plans.length ? null : el("p", { class: "empty" }, "No plan yet."),
    ...plans.map(draw),
  ];
}

function draw({ plan, at }) {
  const done = plan.tasks.filter((task) => task.state === "succeeded").length;
  const part = plan.tasks.length ? (100 * done) / plan.tasks.length : 100;
  const failed = plan.tasks.some((task) => task.state === "failed" || task.state === "blocked");
  const fillWidth = el("i");
  // A style attribute would be inline, which the page's policy refuses; the object model is not.
  fillWidth.style.width = `${part}%`;
  return el("section", { class: "card plan", "aria-label": plan.title },
    el("header", {},
      el("strong", {}, plan.title), badge(plan.state),
      el("span", { class: "num" }, `${done} of ${plan.tasks.length}`)),
    el("div", { class: `meter ${failed ? "bad" : ""}`, role: "progressbar", "aria-valuenow": Math.round(part), "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": "Tasks done" }, fillWidth),
    plan.reason ? el("p", { class: "problem" }, plan.reason) : null,
    ...plan.phases.flatMap((name, index) => {
      const tasks = plan.tasks.filter((task) => task.phase === index);
      if (tasks.length === 0) return [];
      return [el("div", { class: "phase" }, name), el("ul", { class: "tasks" }, tasks.map((one) => task(one, at)))];
    }));
}

function task(one, at) {
  const running = one.state === "running" || one.state === "undoing";
  const seconds = one.seconds === undefined ? undefined : one.seconds + (running ? (Date.now() - at) / 1000 : 0);
  const notes = [one.attempt > 1 ? `attempt ${one.attempt}` : "", one.satisfied ? "was done already" : "", span(seconds)];
  return el("li", { class: one.state },
    el("span", { class: "sign", "aria-hidden": "true" }, SIGNS[one.state] ?? "·"),
    el("span", { class: "name", title: one.handler }, one.name, el("span", { class: "skip" }, ` ${one.state}`)),
    el("span", { class: "took" }, notes.filter(Boolean).join("  ")),
    one.reason ? el("span", { class: "reason" }, one.reason) : null);
}

