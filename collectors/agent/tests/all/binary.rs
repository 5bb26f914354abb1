//! The program itself, on a machine of files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

use gpuledger_wire::{Report, State};
use serde_json::Value;

use super::machine::Machine;

fn command(machine: &Machine, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuledger-agent"));
    command.arg("--config").arg(machine.file("agent.toml")).arg("--nvml-library").arg(machine.file("node.so"));
    command.arg("--proc").arg(machine.file("proc")).args(arguments);
    command
}

fn run(machine: &Machine, arguments: &[&str]) -> Output {
    command(machine, arguments).output().unwrap()
}

fn settings(machine: &Machine, more: &str) {
    let text = format!("cluster = \"c\"\nsample_seconds = 1\nreport_seconds = 1\n{more}");
    fs::write(machine.file("agent.toml"), text).unwrap();
}

/// A machine that plays a scenario of the folder, at a second of it.
fn of_file(scenario: &str, second: i64) -> Machine {
    let machine = Machine::of_file(scenario);
    machine.set_second(second);
    settings(&machine, "");
    machine
}

#[test]
fn one_look_at_the_captured_h100_shows_its_slices_and_who_is_on_them() {
    let machine = of_file("h100-mig.toml", 30);
    for pid in [21180, 21181, 21198] {
        machine.process(pid, "9001", 0);
    }
    let output = run(&machine, &["--once", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let gpu = &seen["gpus"][0];
    assert_eq!((gpu["model"].as_str(), gpu["mig"].as_bool()), (Some("NVIDIA H100 80GB HBM3"), Some(true)));
    let units = gpu["units"].as_array().unwrap();
    let told: Vec<_> = units
        .iter()
        .map(|unit| {
            let number = |name: &str| unit[name].as_u64().unwrap();
            assert_eq!(unit["parent"], gpu["uuid"]);
            let ids = (number("gpu_instance"), number("compute_instance"));
            (
                unit["profile"].as_str().unwrap(),
                ids,
                number("compute_slices"),
                number("memory_bytes") >> 20,
                unit["state"].as_str().unwrap(),
            )
        })
        .collect();
    let wanted = [
        ("3g.40gb", (2, 0), 3, 40_448, "held"),
        ("2g.20gb", (3, 0), 2, 20_096, "idle"),
        ("1g.10gb", (9, 0), 1, 9_984, "idle"),
        ("1g.10gb", (10, 0), 1, 9_984, "idle"),
    ];
    assert_eq!(told, wanted);
    let pids: Vec<u64> =
        units[0]["processes"].as_array().unwrap().iter().map(|one| one["pid"].as_u64().unwrap()).collect();
    assert_eq!((pids, &units[0]["jobs"]), (vec![21180, 21181, 21198], &serde_json::json!(["9001"])));
}

#[test]
fn att_02_outside_the_hosts_namespace_nobody_is_billed_and_it_says_so() {
    let machine = of_file("h100-mig.toml", 30);
    machine.process(21180, "of-the-container", 0);
    fs::remove_file(machine.file("proc/1/ns/pid")).unwrap();
    symlink("pid:[4026532201]", machine.file("proc/1/ns/pid")).unwrap();
    let output = run(&machine, &["--once"]);
    assert_eq!(output.status.code(), Some(2));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["gpus"][0]["units"][0]["jobs"], serde_json::json!(["unattributed"]));
    assert!(seen["findings"][0].as_str().unwrap().starts_with("not in the host's namespace of processes"));
}

#[test]
fn a_dry_run_prints_reports_and_ends_in_order_when_it_is_told_to() {
    let machine = of_file("h100.toml", 0);
    for pid in [11327, 11328, 11345] {
        machine.process(pid, "9001", 0);
    }
    let mut command = command(&machine, &["--dry-run"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    // It reports each second; a signal lets it finish what is open.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().take(2).count() == 2);
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let last: Report = serde_json::from_str(&lines.last().unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!((last.node.as_str(), last.boot_id.as_str(), last.head.len()), ("gpu01", "b-1", 0));
    assert!(last.segments.iter().all(|segment| segment.state == State::Held && segment.job == Some(0)));
    assert_eq!(last.jobs[0].source_id, "9001");
    let held: i64 = last.segments.iter().map(|segment| segment.share_us).sum();
    assert!(held > 0 && last.units.len() == 1, "{last:?}");
}

#[test]
fn wrong_settings_say_what_and_how_to_mend_it() {
    let machine = of_file("h100.toml", 0);
    let cases = [
        ("sample_second = 1\n", "unknown field `sample_second`"),
        ("service = \"http://far.example\"\n", "must begin with https://"),
        ("service = \"https://far.example\"\n", "token_file is missing"),
        ("service = \"https://far.example\"\ntoken_file = \"/t\"\n", "ca_file is missing"),
        ("[sharing]\nreplicas = 0\n", "sharing.replicas is 0"),
        ("[sharing]\nweight = \"limit\"\n", "go together"),
        ("[[sharing.limit]]\npercent = 30\nuid = 1\n", "go together"),
        ("[sharing]\nweight = \"limit\"\n[[sharing.limit]]\npercent = 130\nuid = 1\n", "limit 1: percent is 130"),
        ("[sharing]\nweight = \"limit\"\n[[sharing.limit]]\npercent = 30\n", "one of job, account and uid"),
        ("metrics = \"0.0.0.0:9435\"\n", "must be an address of this machine alone"),
        ("", "the settings name no service"),
    ];
    for (more, wanted) in cases {
        settings(&machine, more);
        let output = run(&machine, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(wanted), "{said}");
    }
    settings(&machine, "");
    let checked = run(&machine, &["--check"]);
    assert!(String::from_utf8_lossy(&checked.stdout).contains("1 GPUs are seen; no service is named"), "{checked:?}");
}

#[test]
fn the_settings_that_are_shipped_can_be_read() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/package/agent.toml");
    let config = gpuledger_agent::config::Config::read(std::path::Path::new(file)).unwrap();
    assert_eq!(config.spool.to_str(), Some("/var/lib/gpuledger-agent/spool"));
}

/// The status and body of what is asked of an address.
fn ask(address: &str, request: &str) -> (u16, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn figures_are_told_on_this_machine_under_the_names_that_dashboards_know() {
    let machine = of_file("h100-mig.toml", 30);
    for pid in [21180, 21181, 21198] {
        machine.process(pid, "9001", 0);
    }
    settings(&machine, "metrics = \"127.0.0.1:0\"\n");
    let mut command = command(&machine, &["--dry-run"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = said.find(|line| line.contains("/metrics")).unwrap();
    let address = line.rsplit_once("http://").unwrap().1.trim_end_matches("/metrics").to_owned();
    let get = |path: &str, host: &str| ask(&address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    // The first look is made at once.
    let told = (0..100).map(|_| get("/metrics", &address).1).find(|text| text.contains("DCGM_FI_DEV_FB_USED"));
    let told = told.unwrap();
    let slice = "gpu=\"0\",UUID=\"GPU-00000000-0000-0000-0000-000000000000\",pci_bus_id=\"00000000:00:09.0\",device=\"nvidia0\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"gpu01\",GPU_I_PROFILE=\"3g.40gb\",GPU_I_ID=\"2\",GPU_C_ID=\"0\",hpc_job=\"9001\"";
    assert!(told.contains(&format!("DCGM_FI_DEV_FB_USED{{{slice}}} 11091\n")), "{told}");
    assert!(
        told.contains("# TYPE DCGM_FI_DEV_POWER_USAGE gauge\nDCGM_FI_DEV_POWER_USAGE{") && told.contains("} 432.210\n")
    );
    assert!(told.contains("gpuledger_agent_samples_total ") && told.contains("gpuledger_agent_segments_in_memory "));
    assert!(!told.contains("DCGM_FI_DEV_GPU_UTIL"), "with MIG there is no utilisation");
    assert_eq!(get("/metrics", "evil.example").0, 421);
    assert_eq!(get("/else", "localhost").0, 404);
    assert_eq!(ask(&address, "POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").0, 405);
    assert_eq!(ask(&address, "what\r\n\r\n").0, 400);
    child.kill().unwrap();
    child.wait().unwrap();
}
