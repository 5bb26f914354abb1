//! Sessions at a terminal, as text: files, commands, and what must be printed. Each runs on both databases.
//!
//! A scenario is a file in `scenarios/`. `=== copy PATH` puts a file of the project beside the books, `=== file NAME` begins a file's content, `=== session ZONE` the session:
//! lines that begin with `$ ` are commands, the lines below a command are all that it prints, and `[N]` alone on a
//! line is its exit code where that is not 0. Set `UPDATE_SCENARIOS=1` to write down what is printed now, then read it.

use std::fmt::Write;

use crate::support::{Books, command, on_both, project_file};

fn play(name: &str, books: &Books) -> (String, String) {
    let path = project_file("tests/scenarios").join(name);
    let wanted = std::fs::read_to_string(&path).unwrap();
    let (head, session) = wanted.split_once("=== session ").expect("a scenario has a session");
    for copied in head.lines().filter_map(|line| line.strip_prefix("=== copy ")) {
        let name = copied.rsplit('/').next().unwrap();
        std::fs::copy(project_file(copied), books.path(name)).unwrap();
    }
    for file in head.split("=== file ").skip(1) {
        let (file_name, content) = file.split_once('\n').unwrap();
        let content = content.split("=== copy ").next().unwrap();
        std::fs::write(books.path(file_name), content.replace("\\u{feff}", "\u{feff}").replace("\\x1f", "\u{1f}"))
            .unwrap();
    }
    let (zone, session) = session.split_once('\n').unwrap();
    let mut played = format!("{head}=== session {zone}\n");
    for line in session.lines().filter(|line| line.starts_with("$ ")) {
        let words: Vec<&str> = line.split_whitespace().skip(2).collect();
        let ran = command::run_in(books, zone, &words);
        writeln!(played, "{line}").unwrap();
        // Where the books are differs from run to run.
        let shown = format!("{}{}", ran.out, ran.err)
            .replace(&books.database().without_secret(), "DATABASE")
            .replace("\r\n", "\n");
        // Every new migration would change every scenario.
        let shown = match shown.split_once(": ran ").and_then(|(head, rest)| Some((head, rest.split_once(';')?.1))) {
            Some(("DATABASE", rest)) => format!("DATABASE: ran all migrations;{rest}"),
            _ => shown,
        };
        for line in shown.split_inclusive('\n') {
            // The role of these tests owns its tables on a server; SQLite has no roles. `frozen` tests both.
            played.push_str(if line.contains(" frozen tables: ") { "…       frozen tables\n" } else { line });
        }
        if ran.code != 0 {
            writeln!(played, "[{}]", ran.code).unwrap();
        }
    }
    (wanted, played)
}

fn check(name: &str, books: Books) {
    let (wanted, played) = play(name, &books);
    if std::env::var_os("UPDATE_SCENARIOS").is_some() && books.schema().is_none() {
        std::fs::write(project_file("tests/scenarios").join(name), &played).unwrap();
    } else {
        assert!(wanted == played, "{name} printed other than it should:\n{played}");
    }
}

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        $(fn $name(books: Books) { check(concat!(stringify!($name), ".txt"), books); })*
        on_both!($($name),*);

        #[test]
        fn every_scenario_is_played() {
            let mut files: Vec<String> = std::fs::read_dir(project_file("tests/scenarios")).unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            files.sort();
            let mut played = [$(concat!(stringify!($name), ".txt")),*];
            played.sort_unstable();
            assert_eq!(files, played);
        }
    };
}

scenarios!(
    a_cluster_without_agents_and_its_capacity,
    a_diff_is_refused_as_apply_would,
    a_diff_of_a_price_for_what_had_none,
    a_diff_of_a_price_raised_mid_month,
    a_diff_of_a_team_renamed,
    a_diff_of_rules_that_move_jobs,
    a_diff_of_the_credit_rate_and_of_tiny_amounts,
    a_first_month,
    a_price_file_with_mistakes_changes_nothing_imp_01,
    a_price_that_changes_mid_job_pri_01,
    a_running_job_grows_and_is_never_doubled,
    closing_an_earlier_month_later_changes_nothing,
    days_of_23_and_25_hours_tim_01,
    delimiters_and_line_breaks_in_names_job_06,
    ends_told_in_closed_months,
    gpus_in_alloc_tres_are_counted_once_job_01,
    hours_over_the_edge_of_a_closed_month,
    jobs_that_run_over_a_close,
    leap_second_tim_02,
    local_times_of_slurm_tim_01,
    month_boundary_in_new_york_tim_04,
    month_boundary_in_utc_tim_04,
    more_held_than_exists_holds_the_close,
    names_forge_neither_records_nor_fields,
    no_price_is_not_zero_pri_02,
    one_job_told_in_many_ways,
    only_running_time_is_charged_job_04,
    parts_of_a_heterogeneous_job_job_03,
    running_jobs_that_end_otherwise,
    seven_teams_and_a_rounding_row_rnd_01,
    slices_that_nothing_describes_are_unpriced,
    slurm_places_its_jobs_by_the_inventory,
    suspended_time_over_a_close_and_a_move,
    tasks_of_an_array_job_02,
    tiny_rows_rnd_03,
    unknown_ends_and_suspended_time_job_04,
    what_lossy_exports_of_slurm_lose,
    what_slurm_tells_of_closed_months,
    who_pays_for_how_jobs_end,
    windows_that_overlap_and_clip,
);
