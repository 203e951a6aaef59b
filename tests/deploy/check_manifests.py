"""Checks the manifests of `deploy/` against the schemas of Kubernetes, and every task's TF_CONFIG against the existing tasks.

Kinds that aren't part of Kubernetes itself (TFJob, JobSet, ClusterTrainingRuntime) have no schema here: only their templates of
Jobs and pods are checked. If kubectl is installed, its rendered output is checked as well.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import kubernetes_validate
import yaml

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
# The oldest version with all used fields.
VERSION = "1.31"
KINDS = {"ConfigMap", "Job", "NetworkPolicy", "PersistentVolumeClaim", "PodDisruptionBudget", "Service"}


def main():
    complaints = []
    checked = 0
    for path in sorted(DEPLOY.rglob("*.yaml")):
        if path.name == "kustomization.yaml":
            complaints += check_kustomization(path)
            continue
        documents = list(yaml.safe_load_all(path.read_text()))
        checked += len(documents)
        complaints += [f"{path.relative_to(DEPLOY)}: {complaint}" for complaint in check_all(documents)]
    complaints += check_names_of_base()
    for directory in ("kubernetes/base", "kubernetes/overlays/estimator"):
        rendered = render(directory)
        if rendered is None:
            print(f"== {directory}: not rendered, since kubectl is not installed")
            continue
        checked += len(rendered)
        complaints += [f"{directory}, rendered: {complaint}" for complaint in check_all(rendered)]
    if checked < 12:
        complaints.append("the manifests were not found")
    print("\n".join(complaints) or f"{checked} manifests checked")
    return 1 if complaints else 0


def check_all(documents):
    """Yields the errors in these objects, which belong together."""
    for document in documents:
        kind = document["kind"]
        name = f"{kind} {document['metadata']['name']}"
        if kind in KINDS:
            yield from complaints_of(name, document)
        for template in job_templates(document):
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": template["spec"]}
            yield from complaints_of(f"{name}: Job", job)
        pods = list(pod_templates(document))
        if kind not in KINDS and not pods:
            yield f"{name}: no templates of pods were found"
        for template in pods:
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]}
            yield from complaints_of(f"{name}: Pod", pod)
            yield from check_confinement(name, template["spec"])
        yield from check_tf_configs(name, document, documents)


def complaints_of(name, document):
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{name}: {error.message}"


def walk(value):
    """Yields every mapping in a document."""
    if isinstance(value, dict):
        yield value
        value = value.values()
    if isinstance(value, (list, type({}.values()))):
        for item in value:
            yield from walk(item)


def job_templates(document):
    return (item["template"] for item in walk(document) if "completionMode" in item.get("template", {}).get("spec", {}))


def pod_templates(document):
    return (item["template"] for item in walk(document) if "containers" in item.get("template", {}).get("spec", {}))


def check_confinement(name, pod):
    """Yields permissions of a pod that no task needs."""
    if pod.get("securityContext", {}).get("runAsNonRoot") is not True:
        yield f"{name}: runs as root"
    if pod.get("automountServiceAccountToken") is not False:
        yield f"{name}: has the service account's token"
    for container in pod["containers"]:
        context = container.get("securityContext", {})
        if context.get("readOnlyRootFilesystem") is not True or context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: its root file system can be written, or it can get rights"
        if "memory" not in container.get("resources", {}).get("limits", {}):
            yield f"{name}: has no limit of memory"


def check_tf_configs(name, document, documents):
    """Yields the errors in the TF_CONFIG of the Jobs in a document."""
    clusters = [other["data"]["cluster"] for other in documents if other["kind"] == "ConfigMap"]
    for spec in (item for item in walk(document) if item.get("completionMode") == "Indexed"):
        for index in range(spec["completions"]):
            known = {"INDEX": str(index), "NAME": "name", "CLUSTER": clusters[0] if clusters else None}
            for variable in spec["template"]["spec"]["containers"][0]["env"]:
                value = expand(variable.get("value"), known)
                if value is not None:
                    known[variable["name"]] = value
            if known["CLUSTER"] is None:
                # The cluster of a Job in a file of its own is in another file.
                continue
            config = json.loads(known["TF_CONFIG"])
            task = config["task"]
            tasks = config["cluster"].get(task["type"], [])
            if task["type"] != "evaluator" and len(tasks) != spec["completions"]:
                yield f"{name}: {spec['completions']} tasks of {task['type']}, and the cluster has {len(tasks)}"


def expand(value, known):
    """Returns a value with its $(NAME)s expanded as in Kubernetes; None if one isn't known."""
    if value is None or any(known.get(name) is None for name in re.findall(r"\$\((\w+)\)", value)):
        return None
    return re.sub(r"\$\((\w+)\)", lambda match: known[match.group(1)], value)


def check_kustomization(path):
    """Yields files that a kustomization names but that don't exist, and those beside it that it doesn't name."""
    named = yaml.safe_load(path.read_text())["resources"]
    for resource in named:
        if not (path.parent / resource).exists():
            yield f"{path.relative_to(DEPLOY)}: there is no {resource}"
    for other in path.parent.glob("*.yaml"):
        if other != path and other.name not in named:
            yield f"{path.relative_to(DEPLOY)}: doesn't name {other.name}"


def check_names_of_base():
    """Yields addresses of the cluster that aren't those of a Job's pod, and errors in the TF_CONFIGs."""
    base = DEPLOY / "kubernetes/base"
    paths = [path for path in sorted(base.glob("*.yaml")) if path.name != "kustomization.yaml"]
    documents = [document for path in paths for document in yaml.safe_load_all(path.read_text())]
    cluster = json.loads(next(item["data"]["cluster"] for item in documents if item["kind"] == "ConfigMap"))
    jobs = {item["metadata"]["name"]: item["spec"] for item in documents if item["kind"] == "Job"}
    service = next(item["metadata"]["name"] for item in documents if item["kind"] == "Service")
    pods = {f"{job}-{index}.{spec['template']['spec']['subdomain']}:2222"
            for job, spec in jobs.items() for index in range(spec["completions"])}
    named = {address for addresses in cluster.values() for address in addresses}
    if pods != named:
        yield f"kubernetes/base: the cluster names {sorted(named)}, and the pods are {sorted(pods)}"
    if any(spec["template"]["spec"]["subdomain"] != service for spec in jobs.values()):
        yield f"kubernetes/base: a Job's subdomain isn't the Service {service}"
    yield from check_all(documents)


def render(directory):
    """Returns kubectl's rendering of a kustomization."""
    if shutil.which("kubectl") is None:
        return None
    command = ["kubectl", "kustomize", str(DEPLOY / directory)]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}`: {process.stderr}")
    return list(yaml.safe_load_all(process.stdout))


if __name__ == "__main__":
    sys.exit(main())
