//! The project's own rules, held by an ordinary test: layers, sizes, words, licences, and a map that is true.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::project_file;

/// Every file below a folder whose name ends so, as a path from the project's root.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![project_file(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path.strip_prefix(project_file("")).unwrap().to_path_buf());
            }
        }
    }
    found.sort();
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(project_file("").join(path)).unwrap()
}

fn sources() -> Vec<PathBuf> {
    ["src", "collectors", "tests", "benches"].into_iter().flat_map(|folder| files(folder, ".rs")).collect()
}

/// The code of a file, without comments and without its own tests.
fn code(path: &Path) -> String {
    let text = text(path);
    let code = text.split("\n#[cfg(test)]").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn layer(path: &Path) -> String {
    let text = path.to_string_lossy();
    let rest = text.strip_prefix("src/").unwrap();
    rest.split(['/', '.']).next().unwrap().to_owned()
}

/// Who may use whom within the service. A layer that is missing here may use nothing of its own crate.
const MAY_USE: &[(&str, &[&str])] = &[
    ("config", &["diagnostics", "error", "files"]),
    ("error", &["diagnostics"]),
    ("files", &["diagnostics", "error", "files"]),
    ("import", &["error", "files", "import"]),
    ("workflows", &["diagnostics", "error", "files", "import", "workflows"]),
    ("export", &["config", "error", "export", "workflows"]),
    ("web", &["clock", "config", "error", "export", "import", "web", "workflows"]),
    ("demo", &["config", "error", "files", "import", "workflows"]),
    (
        "cli",
        &["cli", "clock", "config", "demo", "diagnostics", "error", "export", "files", "import", "web", "workflows"],
    ),
];

#[test]
fn each_layer_uses_only_those_below_it() {
    for path in files("src", ".rs") {
        let layer = layer(&path);
        if ["domain", "db", "lib", "main"].contains(&layer.as_str()) {
            continue;
        }
        let may = MAY_USE.iter().find(|(name, _)| *name == layer).map_or(&[][..], |(_, may)| may);
        for rest in code(&path).split("crate::").skip(1) {
            let used: Vec<String> = match rest.strip_prefix('{') {
                Some(list) => list
                    .split('}')
                    .next()
                    .unwrap()
                    .split(',')
                    .map(|name| name.trim().split("::").next().unwrap().to_owned())
                    .collect(),
                None => vec![rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned()],
            };
            for name in used.iter().filter(|name| !name.is_empty()) {
                assert!(may.contains(&name.as_str()), "{} uses {name}, which {layer} may not", path.display());
            }
        }
    }
}

/// The stages of the domain in order; each may use itself, the vocabulary, and what stands before it.
const STAGES: [&str; 4] = ["metering", "rules", "pricing", "statements"];
const VOCABULARY: [&str; 7] = ["calendar", "ids", "inventory", "money", "teams", "time", "units"];

#[test]
fn each_stage_of_the_domain_uses_only_those_before_it() {
    for path in files("src/domain", ".rs") {
        let name =
            path.strip_prefix("src/domain").unwrap().to_string_lossy().split(['/', '.']).next().unwrap().to_owned();
        let stage = STAGES.iter().position(|stage| *stage == name);
        for used in code(&path).split("crate::").skip(1) {
            let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            let place = STAGES.iter().position(|stage| *stage == used);
            let fine =
                VOCABULARY.contains(&used) || place.is_some_and(|place| stage.is_some_and(|stage| place <= stage));
            // Money in the vocabulary never looks at stages; statements of lib.rs are its module list.
            assert!(fine || name == "lib", "{} uses {used}", path.display());
        }
    }
}

#[test]
fn the_domain_is_pure_and_diesel_has_one_home() {
    for path in files("src/domain", ".rs") {
        let code = code(&path);
        for word in [
            "f32",
            "f64",
            "std::fs",
            "std::io",
            "std::net",
            "SystemTime",
            "Instant::now",
            "async ",
            "serde",
            "diesel",
            "rand::",
            "HashMap",
            "HashSet",
            "println!",
        ] {
            assert!(!code.contains(word), "{} holds {word}", path.display());
        }
    }
    let manifest = text(Path::new("src/domain/Cargo.toml"));
    let dependencies: Vec<&str> = manifest
        .split("[dependencies]")
        .nth(1)
        .unwrap()
        .split("\n[")
        .next()
        .unwrap()
        .lines()
        .filter_map(|line| line.split([' ', '.']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect();
    assert_eq!(dependencies, ["jiff", "rust_decimal"]);
    for path in files("src", ".rs").into_iter().filter(|path| !path.starts_with("src/db")) {
        assert!(!code(&path).contains("diesel"), "{} names diesel", path.display());
    }
    for manifest in ["Cargo.toml", "src/domain/Cargo.toml"] {
        assert!(!text(Path::new(manifest)).lines().any(|line| line.starts_with("diesel")), "{manifest}");
    }
}

#[test]
fn the_clock_is_read_in_one_place_and_http_named_in_one_layer() {
    for path in files("src", ".rs") {
        let code = code(&path);
        let is = |name: &str| path == Path::new(name);
        assert!(is("src/clock.rs") || !code.contains("SystemTime"), "{} reads the wall clock", path.display());
        assert!(
            path.starts_with("src/web") || is("src/web.rs") || !code.contains("actix"),
            "{} names HTTP",
            path.display()
        );
        assert!(!code.contains("unsafe"), "{} is unsafe", path.display());
    }
}

#[test]
fn nothing_is_unfinished_or_switched_off() {
    let forbidden = [
        concat!("todo", "!"),
        concat!("unimplemented", "!"),
        concat!("#[ign", "ore"),
        concat!("dbg", "!("),
        concat!("FIX", "ME"),
        concat!("XX", "X"),
    ];
    for path in sources() {
        let text = text(&path);
        for word in forbidden {
            assert!(!text.contains(word), "{} holds {word}", path.display());
        }
    }
    for path in files("src", ".rs").into_iter().filter(|path| !path.ends_with("tests.rs")) {
        for word in [".unwrap()", ".expect("] {
            assert!(!code(&path).contains(word), "{} holds {word} outside tests", path.display());
        }
    }
}

/// Files and functions that were longer when the rule came; none is, so none may become so.
const LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

#[test]
fn files_and_functions_fit_their_size() {
    for path in sources() {
        let text = text(&path);
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX || path == Path::new("src/db/schema.rs"), "{} has {lines} lines", path.display());
        let mut begun: Option<(usize, usize, &str)> = None;
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let head = line.trim_start();
            match begun {
                None if [
                    "fn ",
                    "pub fn ",
                    "pub(super) fn ",
                    "pub(crate) fn ",
                    "async fn ",
                    "pub(super) async fn ",
                    "pub async fn ",
                    "const fn ",
                    "pub const fn ",
                ]
                .iter()
                .any(|start| head.starts_with(start))
                    && !line.ends_with(';')
                    && !line.ends_with('}') =>
                {
                    begun = Some((number, indent, head));
                }
                Some((from, depth, name)) if indent == depth && head.starts_with('}') => {
                    let length = number - from + 1;
                    let in_tests = path.starts_with("tests") || path.starts_with("benches");
                    assert!(
                        length <= FUNCTION_LINES_MAX || in_tests,
                        "{}:{}: {name} has {length} lines",
                        path.display(),
                        from + 1
                    );
                    begun = None;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn every_path_and_name_on_the_map_exists() {
    let map = text(Path::new("docs/ARCHITECTURE.md"));
    let all: String = sources().iter().map(|path| text(path)).collect::<Vec<_>>().join("\n")
        + &files("migrations", ".sql").iter().map(|path| text(path)).collect::<String>()
        + &files("templates", ".html").iter().map(|path| text(path)).collect::<String>()
        + &text(Path::new("Cargo.toml"))
        + &text(Path::new("src/domain/Cargo.toml"))
        + &text(Path::new("src/db/Cargo.toml"))
        + &files("collectors", "Cargo.toml").iter().map(|path| text(path)).collect::<String>();
    let mut checked = 0;
    let mut in_block = false;
    for line in map.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
            continue;
        }
        if in_block {
            continue;
        }
        for name in line.split('`').skip(1).step_by(2) {
            checked += 1;
            let path = name.trim_end_matches('/');
            let exists = project_file(path).exists()
                || (path.contains('*') && project_file(path.split('*').next().unwrap()).exists())
                || name.starts_with("gpuledger ")
                || name.starts_with("./")
                || name
                    .split("::")
                    .flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-'))
                    .filter(|part| !part.is_empty())
                    .all(|part| all.contains(part));
            assert!(exists, "docs/ARCHITECTURE.md names `{name}`, which does not exist");
        }
    }
    assert!(checked > 50, "only {checked} names were found on the map");
    let links = map
        .split("](")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap())
        .filter(|link| !link.starts_with("http") && !link.starts_with('#'));
    for link in links {
        let file = link.split('#').next().unwrap();
        assert!(project_file("docs").join(file).exists(), "docs/ARCHITECTURE.md links to {link}");
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut documents = files("docs", ".md");
    documents.extend(["README.md", "migrations/README.md"].map(PathBuf::from));
    for document in documents {
        let folder = document.parent().unwrap().to_path_buf();
        for rest in text(&document).split("](").skip(1) {
            let link = rest.split([')', '#', ' ']).next().unwrap();
            if link.is_empty() || link.contains("://") {
                continue;
            }
            assert!(project_file("").join(&folder).join(link).exists(), "{} links to {link}", document.display());
        }
    }
}

#[test]
fn the_guide_exports_the_fields_that_doctor_sacct_asks_for() {
    let program = text(Path::new("src/cli/doctor.rs"));
    let fields = program.split("const FIELDS: &str = \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(fields.starts_with("JobID,JobIDRaw,"), "{fields}");
    assert!(text(Path::new("docs/guides/platform-engineer.md")).contains(&format!("--format={fields} ")), "{fields}");
}

#[test]
fn the_project_speaks_of_itself_alone() {
    let home = concat!("/ro", "ot/");
    let mut all = sources();
    all.extend(files("docs", ".md"));
    all.extend(["README.md", "test", ".ci/run"].map(PathBuf::from));
    for path in all {
        let text = text(&path);
        for word in [home, concat!("/wo", "rk/"), concat!("../sha", "red")] {
            assert!(!text.contains(word), "{} holds {word}", path.display());
        }
    }
}

/// The machine this runs on, as cargo calls it.
fn host() -> String {
    let output = std::process::Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// Licences that may be shipped with an Apache-2.0 product.
const LICENCES: [&str; 13] = [
    "MIT",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "0BSD",
    "CC0-1.0",
    "MIT-0",
    "OpenSSL",
    "PostgreSQL",
];

#[test]
fn every_dependency_has_a_licence_that_may_be_shipped() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", &host()])
        .current_dir(project_file(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100);
    let mut refused = BTreeSet::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none").replace('/', " OR ");
        // One of the alternatives must be fine, with all of its parts.
        let fine = licence.split(" OR ").any(|alternative| {
            alternative.split(" AND ").all(|part| {
                LICENCES.contains(&part.trim_matches(|c| "() ".contains(c)).split(" WITH ").next().unwrap())
            })
        });
        if !fine {
            refused.insert(format!("{} {licence}", package["name"]));
        }
    }
    assert!(refused.is_empty(), "{refused:?}");
}
