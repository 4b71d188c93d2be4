// Lists, and what there is to know about one thing.

import { get, list, patch } from "/console/api.js";
import { badge, el, facts, short, span, table, time } from "/console/dom.js";

const LCM = "/vnflcm/v2";
const PKGM = "/vnfpkgm/v1";

const link = (page, id, ...text) => el("a", { href: `#/${page}/${id}` }, ...text);
const more = (page) => (page.more ? el("p", { class: "muted" }, "There are more; ", el("code", {}, "guywire"), " lists them all.") : null);
const newest = (items, by) => [...items].sort((a, b) => (a[by] < b[by] ? 1 : -1));

export async function instances() {
  const page = await list(`${LCM}/vnf_instances`);
  return [
    el("h1", {}, "Instances"),
    table(page.items, [
      ["Name", (one) => link("instances", one.id, one.vnfInstanceName || short(one.id))],
      ["State", (one) => badge(one.instantiationState)],
      ["Product", (one) => `${one.vnfProductName} ${one.vnfSoftwareVersion}`],
      ["Provider", (one) => one.vnfProvider],
      ["Operation", (one) => {
        const href = one._links?.currentOperation?.href;
        return href ? link("operations", href.split("/").pop(), "under way") : "";
      }],
      ["Id", (one) => short(one.id)],
    ], "No instances yet. Upload a package and create one: guywire vnf create VNFD"),
    more(page),
  ];
}

export async function instance(id) {
  const one = await get(`${LCM}/vnf_instances/${encodeURIComponent(id)}`);
  const filter = encodeURIComponent(`(eq,vnfInstanceId,${one.id})`);
  const done = await list(`${LCM}/vnf_lcm_op_occs?filter=${filter}`);
  const info = one.instantiatedVnfInfo;
  const scale = (info?.scaleStatus ?? []).map((aspect) => `${aspect.aspectId} at ${aspect.scaleLevel}`);
  return [
    el("p", { class: "crumb" }, el("a", { href: "#/instances" }, "Instances")),
    el("h1", {}, one.vnfInstanceName || "Instance ", " ", badge(one.instantiationState)),
    facts([
      ["Id", el("span", { class: "mono" }, one.id)],
      ["Description", one.vnfInstanceDescription],
      ["Product", `${one.vnfProductName} ${one.vnfSoftwareVersion} by ${one.vnfProvider}`],
      ["VNFD", el("span", { class: "mono" }, one.vnfdId)],
      ["Flavour", info?.flavourId],
      ["Level", info?.instantiationLevelId],
      ["Scale", scale.join(", ")],
      ["Machines", info ? badge(info.vnfState) : null],
    ]),
    info ? el("h2", {}, "Components") : null,
    info ? table(info.vnfcResourceInfo ?? [], [
      ["Component", (part) => part.id],
      ["VDU", (part) => part.vduId],
      ["Addresses", (part) => el("span", { class: "mono" }, addresses(part).join("  "))],
      ["Machine", (part) => part.metadata?.machine],
      ["Resource", (part) => short(part.computeResource?.resourceId)],
    ], "No components") : null,
    el("h2", {}, "Operations"),
    operationTable(done.items, false),
    more(done),
  ];
}

export async function operations() {
  const page = await list(`${LCM}/vnf_lcm_op_occs`);
  return [el("h1", {}, "Operations"), operationTable(page.items, true), more(page)];
}

function operationTable(items, withInstance) {
  const columns = [
    ["Operation", (one) => link("operations", one.id, one.operation)],
    ["State", (one) => badge(one.operationState)],
    ["Started", (one) => time(one.startTime)],
    ["Took", (one) => took(one), "num"],
    ["Id", (one) => short(one.id)],
  ];
  if (withInstance) columns.splice(4, 0, ["Instance", (one) => link("instances", one.vnfInstanceId, short(one.vnfInstanceId))]);
  return table(newest(items, "startTime"), columns, "No operations yet.");
}

function took(one) {
  const active = ["STARTING", "PROCESSING", "ROLLING_BACK"].includes(one.operationState);
  const end = active ? Date.now() : Date.parse(one.stateEnteredTime);
  return span(Math.max(0, (end - Date.parse(one.startTime)) / 1000));
}

export async function packages() {
  const page = await list(`${PKGM}/vnf_packages`);
  return [
    el("h1", {}, "Packages"),
    table(page.items, [
      ["Product", (one) => link("packages", one.id, one.vnfProductName ? `${one.vnfProductName} ${one.vnfSoftwareVersion ?? ""}` : short(one.id))],
      ["Onboarding", (one) => badge(one.onboardingFailureDetails ? "REFUSED" : one.onboardingState)],
      ["State", (one) => badge(one.operationalState)],
      ["Usage", (one) => one.usageState],
      ["VNFD", (one) => el("span", { class: "mono" }, one.vnfdId ?? "")],
      ["Reason", (one) => one.onboardingFailureDetails?.detail],
    ], "No packages yet. Upload one: guywire package upload FILE"),
    more(page),
  ];
}

export async function pack(id) {
  const one = await get(`${PKGM}/vnf_packages/${encodeURIComponent(id)}`);
  const failure = one.onboardingFailureDetails;
  const files = one.additionalArtifacts ?? [];
  return [
    el("p", { class: "crumb" }, el("a", { href: "#/packages" }, "Packages")),
    el("h1", {}, one.vnfProductName ?? "Package ", " ", badge(failure ? "REFUSED" : one.onboardingState)),
    failure ? el("p", { class: "problem" }, failure.detail) : null,
    facts([
      ["Id", el("span", { class: "mono" }, one.id)],
      ["VNFD", one.vnfdId && el("span", { class: "mono" }, one.vnfdId)],
      ["VNFD version", one.vnfdVersion],
      ["Software", one.vnfSoftwareVersion],
      ["Provider", one.vnfProvider],
      ["State", badge(one.operationalState)],
      ["Usage", one.usageState],
      ["Checksum", one.checksum && el("span", { class: "mono" }, one.checksum.hash)],
    ]),
    files.length ? el("h2", {}, "Artifacts") : null,
    files.length ? table(files, [
      ["Path", (file) => el("span", { class: "mono" }, file.artifactPath)],
      ["Hash", (file) => el("span", { class: "mono" }, `${file.checksum?.hash ?? ""}`.slice(0, 16))],
    ], "") : null,
  ];
}

export async function alarms({ me, refresh }) {
  const page = await list("/vnffm/v1/alarms");
  const mayAck = me.role !== "reader";
  const seen = (one) => {
    if (one.ackState === "ACKNOWLEDGED") return "seen";
    if (!mayAck) return "";
    const acknowledge = async (event) => {
      event.target.disabled = true;
      await patch(`/vnffm/v1/alarms/${one.id}`, { ackState: "ACKNOWLEDGED" });
      refresh();
    };
    return el("button", { type: "button", "data-key": one.id, on: { click: acknowledge } }, "I have seen it");
  };
  return [
    el("h1", {}, "Alarms"),
    table(newest(page.items, "alarmRaisedTime"), [
      ["Severity", (one) => badge(one.perceivedSeverity)],
      ["Cause", (one) => one.probableCause],
      ["Details", (one) => [one.faultDetails ?? []].flat().join(" ")],
      ["Instance", (one) => link("instances", one.managedObjectId, short(one.managedObjectId))],
      ["Raised", (one) => time(one.alarmRaisedTime)],
      ["Cleared", (one) => time(one.alarmClearedTime)],
      ["Seen", seen],
    ], "No alarms."),
    more(page),
  ];
}

export async function subscriptions() {
  const page = await list("/guywire/v1/subscriptions");
  return [
    el("h1", {}, "Subscriptions"),
    table(page.items, [
      ["Callback", (one) => el("span", { class: "mono" }, one.callbackUri)],
      ["Interface", (one) => one.api],
      ["Delivery", (one) => badge(one.delivery?.failures > 0 ? "FAILED" : "")],
      ["Waiting", (one) => String(one.delivery?.waiting ?? ""), "num"],
      ["Delivered", (one) => String(one.delivery?.delivered ?? ""), "num"],
      ["Last error", (one) => one.delivery?.lastError],
      ["Next try", (one) => (one.delivery?.failures > 0 ? time(one.delivery.nextTry) : "")],
    ], "Nobody is told of changes."),
    more(page),
  ];
}

/** Every address of a component, each once. */
function addresses(part) {
  const all = (part.vnfcCpInfo ?? []).flatMap((cp) => (cp.cpProtocolInfo ?? []).flatMap((protocol) =>
    (protocol.ipOverEthernet?.ipAddresses ?? []).flatMap((entry) => entry.addresses ?? [])));
  return [...new Set(all)];
}
