//! Lists of nodes as schedulers write them: `gpu[01-03,07],login1`, or names by comma, semicolon or space.

/// Most nodes one job may name.
const NODES_MAX: usize = 20_000;

/// The names in a list, in its order.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for item in items(list)? {
        match item.split_once('[') {
            None => names.push(item.to_owned()),
            Some((prefix, rest)) => {
                let (ranges, suffix) =
                    rest.split_once(']').ok_or_else(|| format!("“{item}” has no closing bracket"))?;
                for range in ranges.split(',') {
                    let numbers = numbers(range)?;
                    // Before they are written out: a few letters may stand for millions.
                    if names.len() + numbers.len() > NODES_MAX {
                        return Err(format!("it names more than {NODES_MAX} nodes"));
                    }
                    names.extend(numbers.into_iter().map(|number| format!("{prefix}{number}{suffix}")));
                }
            }
        }
        if names.len() > NODES_MAX {
            return Err(format!("it names more than {NODES_MAX} nodes"));
        }
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort_unstable();
    if let Some([twice, _]) = sorted.array_windows().find(|[a, b]| a == b) {
        return Err(format!("{twice:?} is named twice"));
    }
    match names.iter().find(|name| gpuledger_domain::ids::ClusterName::parse(name).is_err()) {
        Some(name) => Err(format!("{name:?} is no name of a node")),
        None => Ok(names),
    }
}

/// Splits at separators that stand outside brackets.
fn items(list: &str) -> Result<Vec<&str>, String> {
    let (mut items, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (index, c) in list.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' | ';' | ' ' if depth == 0 => {
                items.extend(list.get(start..index));
                start = index + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return Err(format!("“{list}” has brackets that do not match"));
        }
    }
    items.extend(list.get(start..));
    Ok(items.into_iter().filter(|item| !item.is_empty()).collect())
}

fn numbers(range: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("“{range}” is no range of numbers");
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let parse = |text: &str| {
        text.parse::<usize>().ok().filter(|_| text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (from, to) = parse(first).zip(parse(last)).ok_or_else(wrong)?;
    if from > to || to - from > NODES_MAX {
        return Err(wrong());
    }
    let width = first.len();
    Ok((from..=to).map(|number| format!("{number:0width$}")).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn brackets_and_separators() {
        assert_eq!(
            expand("gpu[01-03,07],login1 x;y").unwrap(),
            ["gpu01", "gpu02", "gpu03", "gpu07", "login1", "x", "y"]
        );
        assert_eq!(expand("n[9-11]-ib").unwrap(), ["n9-ib", "n10-ib", "n11-ib"]);
        assert_eq!(expand("").unwrap(), Vec::<String>::new());
        for bad in ["n[1-", "n]1[", "n[a-b]", "n[3-1]", "n[1-99999999]", "n[[1]]", "=x", "n1,n1", "n[1-3,2]"] {
            assert!(expand(bad).is_err(), "{bad}");
        }
        assert!(expand(&format!("n[{}1]", "0".repeat(70_000))).is_err());
        assert!(expand(&format!("n[{}0]", "0-9999,".repeat(20_000))).is_err());
    }
}
