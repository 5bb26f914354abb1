//! `sacct --json` and the answers of slurmrestd, of every version: one job at a time, in constant memory.

use std::io::BufRead;

use serde_json::Value;

use super::fields::{Cells, FIELDS, Field};
use super::tres;

/// Longest object that is read, in bytes.
const OBJECT_BYTES_MAX: usize = 16 << 20;
/// Deepest nesting that is read.
const DEPTH_MAX: u32 = 100;

/// Cuts the objects out of the array `jobs`.
pub(super) struct Objects<R> {
    reader: R,
    /// The line that the next byte is on.
    line: u64,
    entered: bool,
}

/// An object of the list and the line it begins on.
pub(super) struct Object {
    pub(super) line: u64,
    pub(super) text: Vec<u8>,
}

impl<R: BufRead> Objects<R> {
    pub(super) fn new(reader: R) -> Objects<R> {
        Objects { reader, line: 1, entered: false }
    }

    /// The next object; `None` at the end of the array.
    ///
    /// # Errors
    /// A sentence where the text breaks off or is no such list; nothing can be read after it.
    pub(super) fn next(&mut self) -> Result<Option<Object>, String> {
        if !self.entered {
            self.enter()?;
            self.entered = true;
        }
        loop {
            match self.byte()? {
                Some(b'{') => return self.object().map(Some),
                Some(b']') => return Ok(None),
                Some(b',' | b' ' | b'\t' | b'\r' | b'\n') => {}
                Some(other) => return Err(format!("a job begins with “{}”, not with {{", char::from(other))),
                None => return Err("the file breaks off inside the list of jobs; export it again".into()),
            }
        }
    }

    /// Reads up to the array's bracket, past whatever stands before it in the outermost object.
    fn enter(&mut self) -> Result<(), String> {
        let mut depth = 0u32;
        let mut name = Vec::new();
        while let Some(byte) = self.byte()? {
            match byte {
                b'{' | b'[' if depth == 1 && byte == b'[' && name == b"jobs" => return Ok(()),
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                b'"' => {
                    let text = self.string()?;
                    if depth == 1 {
                        name = text;
                    }
                }
                _ => {}
            }
        }
        Err("there is no list “jobs” in it; give the output of `sacct --json` or an answer of slurmrestd".into())
    }

    fn object(&mut self) -> Result<Object, String> {
        let line = self.line;
        let mut text = vec![b'{'];
        let mut depth = 1u32;
        while depth > 0 {
            let byte = self.byte()?.ok_or("the file breaks off inside a job; export it again")?;
            text.push(byte);
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                b'"' => {
                    text.extend(self.string()?);
                    text.push(b'"');
                }
                _ => {}
            }
            if text.len() > OBJECT_BYTES_MAX || depth > DEPTH_MAX {
                return Err("a job is larger or deeper than any that Slurm writes".into());
            }
        }
        Ok(Object { line, text })
    }

    /// The rest of a string, without its closing quote.
    fn string(&mut self) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        loop {
            match self.byte()?.ok_or("the file breaks off inside a text; export it again")? {
                b'"' => return Ok(text),
                b'\\' => {
                    text.push(b'\\');
                    text.extend(self.byte()?);
                }
                byte => text.push(byte),
            }
            if text.len() > OBJECT_BYTES_MAX {
                return Err("a text is longer than any that Slurm writes".into());
            }
        }
    }

    fn byte(&mut self) -> Result<Option<u8>, String> {
        let buffer = self.reader.fill_buf().map_err(|error| error.to_string())?;
        let Some(byte) = buffer.first().copied() else { return Ok(None) };
        self.reader.consume(1);
        self.line += u64::from(byte == b'\n');
        Ok(Some(byte))
    }
}

/// The cells of a job's object.
#[derive(Debug)]
pub(super) struct OwnedCells([String; FIELDS]);

impl OwnedCells {
    pub(super) fn borrowed(&self) -> Cells<'_> {
        self.0.each_ref().map(String::as_str)
    }

    pub(super) fn empty() -> OwnedCells {
        OwnedCells(std::array::from_fn(|_| String::new()))
    }

    /// A plain id that stands alone is the raw one; that of a task or part is not.
    pub(super) fn name_by_plain_id(&mut self) {
        let listed = self.cell(Field::JobId).to_owned();
        let plain = !listed.is_empty() && listed.bytes().all(|byte| byte.is_ascii_digit());
        if self.cell(Field::JobIdRaw).is_empty() && plain {
            self.set(Field::JobIdRaw, listed);
        }
    }

    pub(super) fn cell(&self, field: Field) -> &str {
        self.0.get(field.index()).map_or("", String::as_str)
    }

    pub(super) fn set(&mut self, field: Field, text: String) {
        if let Some(cell) = self.0.get_mut(field.index()) {
            *cell = text;
        }
    }

    /// Reads a job of the accounting (`time`, `tres`) or of the controller (`start_time`, `tres_alloc_str`).
    ///
    /// # Errors
    /// A sentence where it is neither.
    pub(super) fn read(text: &[u8]) -> Result<OwnedCells, String> {
        let job: Value = serde_json::from_slice(text).map_err(|error| format!("it is no JSON: {error}"))?;
        let mut cells = OwnedCells::empty();
        let id = number(at(&job, "/job_id")).ok_or("it has no job_id")?;
        cells.set(Field::JobIdRaw, id.to_string());
        for (field, name) in [
            (Field::Cluster, "cluster"),
            (Field::Account, "account"),
            (Field::Partition, "partition"),
            (Field::Qos, "qos"),
            (Field::Name, "name"),
            (Field::NodeList, "nodes"),
            (Field::SubmitLine, "submit_line"),
        ] {
            cells.set(field, string(named(&job, name)));
        }
        cells
            .set(Field::Restarts, number(at(&job, "/restart_cnt")).map_or_else(String::new, |count| count.to_string()));
        if at(&job, "/time").is_object() {
            cells.accounting(&job, id)?;
        } else if !at(&job, "/start_time").is_null() || !at(&job, "/job_state").is_null() {
            cells.controller(&job, id)?;
        } else {
            return Err("it is neither a job of the accounting nor one of the controller".into());
        }
        Ok(cells)
    }

    fn accounting(&mut self, job: &Value, id: i64) -> Result<(), String> {
        let time = at(job, "/time");
        self.set(
            Field::User,
            if at(job, "/user").is_string() { string(at(job, "/user")) } else { string(at(job, "/association/user")) },
        );
        self.set(Field::State, states(at(job, "/state/current")));
        for (field, name) in
            [(Field::Submit, "submission"), (Field::Eligible, "eligible"), (Field::Start, "start"), (Field::End, "end")]
        {
            self.set(field, instant(named(time, name)));
        }
        self.set(
            Field::ElapsedRaw,
            number(at(time, "/elapsed")).map_or_else(String::new, |seconds| seconds.max(0).to_string()),
        );
        let suspended = number(at(time, "/suspended")).unwrap_or(0).max(0);
        self.set(Field::Suspended, format!("{}:{:02}:{:02}", suspended / 3_600, suspended / 60 % 60, suspended % 60));
        self.set(Field::AllocTres, resources(at(job, "/tres/allocated"))?);
        self.set(Field::ReqTres, resources(at(job, "/tres/requested"))?);
        self.listed(
            id,
            at(job, "/array/job_id"),
            at(job, "/array/task_id"),
            at(job, "/array/task"),
            at(job, "/het/job_id"),
            at(job, "/het/job_offset"),
        );
        Ok(())
    }

    fn controller(&mut self, job: &Value, id: i64) -> Result<(), String> {
        self.set(Field::User, string(at(job, "/user_name")));
        self.set(Field::State, states(at(job, "/job_state")));
        for (field, name) in [
            (Field::Submit, "submit_time"),
            (Field::Eligible, "eligible_time"),
            (Field::Start, "start_time"),
            (Field::End, "end_time"),
        ] {
            self.set(field, instant(named(job, name)));
        }
        let allocated = string(at(job, "/tres_alloc_str"));
        // The detail of what each node gave is there even where the accounting does not track GPUs.
        let details: Vec<&str> =
            at(job, "/gres_detail").as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let detail = tres::gpus_of_detail(&details)?;
        let allocated = if allocated.contains("gres/gpu") || detail.is_empty() {
            allocated
        } else {
            format!("{allocated},{detail}")
        };
        self.set(Field::AllocTres, allocated);
        self.set(Field::ReqTres, string(at(job, "/tres_req_str")));
        self.listed(
            id,
            at(job, "/array_job_id"),
            at(job, "/array_task_id"),
            at(job, "/array_task_string"),
            at(job, "/het_job_id"),
            at(job, "/het_job_offset"),
        );
        Ok(())
    }

    /// What people call the job: `7400_3` in an array, `8100+1` as a part of a heterogeneous job.
    fn listed(&mut self, id: i64, array: &Value, task: &Value, tasks: &Value, het: &Value, offset: &Value) {
        let of = |value: &Value| number(value).filter(|number| *number > 0);
        let listed = match (of(array), number(task), of(het), number(offset)) {
            (Some(array), Some(task), _, _) => format!("{array}_{task}"),
            (Some(array), None, _, _) if tasks.as_str().is_some_and(|tasks| !tasks.is_empty()) => {
                format!("{array}_[{}]", string(tasks))
            }
            (_, _, Some(het), Some(offset)) => format!("{het}+{offset}"),
            _ => id.to_string(),
        };
        self.set(Field::JobId, listed);
    }
}

/// What stands at a path; null where nothing does.
fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    value.pointer(path).unwrap_or(&Value::Null)
}

/// What stands under a name; null where nothing does.
fn named<'v>(value: &'v Value, name: &str) -> &'v Value {
    value.get(name).unwrap_or(&Value::Null)
}

/// A number, plain or as `{"set": true, "infinite": false, "number": 5}`; `None` where it is not set.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Object(fields) => {
            let set = fields.get("set").and_then(Value::as_bool).unwrap_or(true);
            let infinite = fields.get("infinite").and_then(Value::as_bool).unwrap_or(false);
            fields.get("number").and_then(Value::as_i64).filter(|_| set && !infinite)
        }
        other => other.as_i64(),
    }
}

/// Seconds since 1970; 0 and what is not set are no time.
fn instant(value: &Value) -> String {
    number(value).filter(|seconds| *seconds > 0).map_or_else(String::new, |seconds| format!("{seconds:09}"))
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// One state, or several of which the first is the job's and the others add to it.
fn states(value: &Value) -> String {
    match value {
        Value::Array(states) => states.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        other => string(other),
    }
}

/// `[{"type": "gres", "name": "gpu:h100", "count": 4}]` as `gres/gpu:h100=4`.
fn resources(value: &Value) -> Result<String, String> {
    let mut texts = Vec::new();
    for entry in value.as_array().into_iter().flatten() {
        let name = string(at(entry, "/name"));
        if at(entry, "/type") != "gres"
            || !(name.starts_with("gpu") || name.starts_with("shard") || name.starts_with("mps"))
        {
            continue;
        }
        // `gpumem` and `gpuutil` are no counts.
        if name.starts_with("gpu") && !(name == "gpu" || name.starts_with("gpu:")) {
            continue;
        }
        let count = number(at(entry, "/count")).filter(|count| *count >= 0);
        let count =
            count.ok_or_else(|| format!("how many of {name} it held cannot be read: {}", at(entry, "/count")))?;
        texts.push(format!("gres/{name}={count}"));
    }
    Ok(texts.join(","))
}
