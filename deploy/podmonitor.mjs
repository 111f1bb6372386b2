// Checks the PodMonitor on standard input against the schema of the Prometheus operator. The schema accepts unknown
// fields, so their names are compared with the types. Runs in the directory of the packages.
import { readFileSync } from "node:fs";
import { PodMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PodMonitor";

const monitor = JSON.parse(readFileSync(0, "utf8"));
if (!PodMonitor.is(monitor)) throw new Error("not a PodMonitor of monitoring.coreos.com/v1");
new PodMonitor(monitor).validate();
const types = "node_modules/@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";
const check = (object, type) => {
    const fields = readFileSync(`${types}/${type}.d.ts`, "utf8").matchAll(/^ +"(\w+)"\??:/gm);
    const known = new Set([...fields].map(([, name]) => name));
    for (const name of Object.keys(object)) if (!known.has(name)) throw new Error(`${type} has no field ${name}`);
};
check(monitor, "PodMonitor");
check(monitor.spec, "PodMonitorSpec");
for (const endpoint of monitor.spec.podMetricsEndpoints) check(endpoint, "PodMetricsEndpoint");
