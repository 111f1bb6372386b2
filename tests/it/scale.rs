//! The tables of docs/scale.md. They come from the benches' simulation, which is compiled here without the benches.

#[expect(dead_code, unreachable_pub, reason = "the other benches use the rest")]
#[path = "../../benches/src/sample.rs"]
mod sample;
#[expect(unreachable_pub, reason = "the program that prints the tables uses it")]
#[path = "../../benches/src/scale/mod.rs"]
mod simulation;
#[expect(dead_code, unreachable_pub, reason = "the other benches use the rest")]
#[path = "../../benches/src/table.rs"]
mod table;

use simulation::{Inputs, tables};

fn inputs(flags: &str) -> Result<Inputs, String> {
    Inputs::of_flags(flags.split_whitespace().map(str::to_owned))
}

#[test]
fn document_of_scale_shows_what_the_simulation_prints() {
    let document = include_str!("../../docs/scale.md");
    for table in tables(&Inputs::default()) {
        let shown = document.contains(&table.to_string());
        assert!(shown, "docs/scale.md lacks this table; `cargo run -p foldspace-benches --bin scale`:\n{table}");
    }
}

#[test]
fn simulation_with_the_same_seed_gives_the_same() {
    let small = |seed: u64| {
        let inputs = inputs(&format!("--hosts 30 --sessions 2k --streams 3 --seed {seed}")).unwrap();
        tables(&inputs).map(|table| table.to_string())
    };
    assert_eq!(small(7), small(7));
    assert_ne!(small(7), small(8));
}

#[test]
fn simulation_of_the_smallest_cluster_ends() {
    let inputs = inputs("--hosts 2 --sessions 1 --events 1 --mtbf-days 1 --streams 1 --nodes-per-stream 1").unwrap();
    assert!(tables(&inputs)[1].to_string().contains("| 1 of one rack |"));
}

#[test]
fn flags_of_the_simulation_that_are_wrong_are_refused() {
    let cases = [
        ("--hosts", "--hosts needs a number"),
        ("--hosts 1", "nothing could take over"),
        ("--hosts 1.5", "whole numbers from 1"),
        ("--sessions 1G", "whole numbers from 1"),
        ("--lease nan", "this is no number"),
        ("--lease 0", "0.1 or more"),
        ("--events 1e400", "this is no number"),
        ("--racks 2", "--racks is no flag"),
    ];
    for (flags, wrong) in cases {
        let error = inputs(flags).unwrap_err();
        assert!(error.contains(wrong), "{flags}: {error}");
    }
}
