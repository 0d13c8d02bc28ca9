//! What is read of a file.

use teamd_shared::image::ImageType;

use super::*;

#[test]
fn a_file_is_read_by_lines() {
    let scratch = ScratchWorkspace::new();
    scratch.put("five", "1\n2\n3\n4\n5");
    assert_eq!(scratch.read("five").unwrap(), "1\n2\n3\n4\n5");
    assert_eq!(scratch.read_from("five", Some(4), None).unwrap(), "4\n5");
    assert_eq!(scratch.read_from("five", Some(4), Some(2)).unwrap(), "4\n5");
    let page = scratch.read_from("five", Some(2), Some(2)).unwrap();
    assert_eq!(page, "2\n3\n[the file continues: read on with offset 4]");
    assert_eq!(
        scratch.read_from("five", Some(9), None).unwrap_err(),
        "five has 5 lines: offset 9 is behind its end"
    );
    scratch.put("ended", "1\n");
    assert_eq!(
        scratch.read_from("ended", Some(2), None).unwrap(),
        "[the file ends here]"
    );
    scratch.put("empty", "");
    assert_eq!(scratch.read("empty").unwrap(), "[the file is empty]");
    assert_eq!(
        scratch.read("missing").unwrap_err(),
        "cannot open missing: No such file or directory (os error 2)"
    );
}

#[test]
fn a_long_file_is_read_in_pages_that_make_up_the_whole() {
    let scratch = ScratchWorkspace::new();
    let whole: String = (1..=9000).map(|line| format!("line {line} ä\n")).collect();
    scratch.put("long", &whole);
    let mut text = String::new();
    let mut offset = 1;
    loop {
        let page = scratch.read_from("long", Some(offset), Some(5000)).unwrap();
        let Some((lines, note)) = page.rsplit_once('[') else {
            break text.push_str(&page);
        };
        assert!(lines.chars().count() <= KEPT);
        text.push_str(lines);
        offset = note
            .trim_end_matches(']')
            .rsplit(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
    }
    assert_eq!(text, whole);
}

#[test]
fn a_line_without_an_end_is_cut() {
    let scratch = ScratchWorkspace::new();
    scratch.put("wide", &format!("short\n{}\nafter", "ö".repeat(60_000)));
    let page = scratch.read("wide").unwrap();
    assert_eq!(
        page,
        "short\n[50000 characters are the limit: read on with offset 2]"
    );
    let page = scratch.read_from("wide", Some(2), None).unwrap();
    assert!(page.starts_with(&"ö".repeat(50_000)));
    assert!(page.ends_with(
        "\n[50000 characters are the limit, and line 2 alone is longer: look at its end with bash]"
    ));
    assert_eq!(scratch.read_from("wide", Some(3), None).unwrap(), "after");
    scratch.put("widest", &"😀".repeat(50_001));
    assert_eq!(
        scratch
            .read("widest")
            .unwrap()
            .chars()
            .take(50_001)
            .filter(|&c| c == '😀')
            .count(),
        50_000
    );
}

#[test]
fn a_huge_file_costs_nothing_but_its_page() {
    let scratch = ScratchWorkspace::new();
    scratch.put("huge", &"x\n".repeat(5000));
    File::options()
        .write(true)
        .open(scratch.path("huge"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let begun = Instant::now();
    assert!(scratch.read("huge").unwrap().ends_with("offset 2001]"));
    assert!(
        scratch
            .read_from("huge", Some(5001), None)
            .unwrap()
            .contains("line 5001 alone is longer")
    );
    assert!(
        scratch
            .edit("huge", "x", "y")
            .unwrap_err()
            .contains("the limit for edit_file is 16777216")
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_file_that_is_no_text_is_refused_with_its_size() {
    let scratch = ScratchWorkspace::new();
    scratch.put("binary", "ab\0cd");
    assert_eq!(
        scratch.read("binary").unwrap_err(),
        "binary is not text (5 bytes)"
    );
    File::create(scratch.path("latin"))
        .unwrap()
        .write_all(b"caf\xe9\n")
        .unwrap();
    assert_eq!(scratch.read("latin").unwrap(), "caf\u{fffd}\n");
    assert_eq!(
        scratch.edit("latin", "caf", "x").unwrap_err(),
        "latin is not text (5 bytes)"
    );
}

#[test]
fn a_line_far_behind_the_beginning_is_left_to_bash() {
    let scratch = ScratchWorkspace::new();
    let file = File::create(scratch.path("sparse")).unwrap();
    (&file).write_all("text\n".repeat(2000).as_bytes()).unwrap();
    file.set_len(1 << 40).unwrap();
    let error = scratch.read_from("sparse", Some(3000), None).unwrap_err();
    assert!(
        error.contains("offset 3000 lies more than") && error.contains("sed -n 3000,5000p"),
        "{error}"
    );
    assert!(
        scratch
            .read_from("sparse", Some(2000), Some(1))
            .unwrap()
            .starts_with("text\n")
    );
}

#[test]
fn a_guide_is_taken_whole_if_it_fits_and_else_its_first_lines() {
    let scratch = ScratchWorkspace::new();
    scratch.put("CLAUDE.md", "the other one");
    scratch.put("AGENTS.md", "one\ntwo\nthree\n");
    let whole = Guide {
        file: "AGENTS.md".to_owned(),
        text: "one\ntwo\nthree\n".to_owned(),
        rest: None,
    };
    assert_eq!(scratch.guide(14), whole);
    let cut = scratch.guide(13);
    assert_eq!(
        (cut.text.as_str(), cut.rest),
        (
            "one\ntwo\n",
            Some(Rest {
                line: 3,
                taken: 8,
                of: 14
            })
        )
    );
    let from = cut.rest.map(|rest| rest.line as u64);
    assert_eq!(
        scratch.read_from("AGENTS.md", from, None).unwrap(),
        "three\n"
    );
    // However much room there is.
    scratch.put("AGENTS.md", &"x".repeat(100_000));
    let cut = scratch.guide(usize::MAX);
    assert_eq!(
        cut.rest,
        Some(Rest {
            line: 1,
            taken: 64 << 10,
            of: 100_000
        })
    );
    scratch.put("AGENTS.md", " \n");
    assert_eq!(scratch.guide(100).file, "CLAUDE.md");
}

/// The header of a PNG of so many pixels: enough to know its size.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend(b"\x08\x06\0\0\0....");
    bytes
}

#[test]
fn an_image_is_shown_and_one_that_no_model_takes_is_refused() {
    let scratch = ScratchWorkspace::new();
    let read = |bytes: &[u8]| {
        let mut file = File::create(scratch.path("picture")).unwrap();
        file.write_all(bytes).unwrap();
        scratch.workspace.read(&ReadFile {
            path: "picture".to_owned(),
            limit: None,
            offset: None,
        })
    };
    let shown = read(&png(640, 480));
    assert_eq!(
        (shown.content.as_str(), shown.is_error),
        ("[image: png, 33B]", false)
    );
    assert_eq!(shown.images[0].media_type, ImageType::Png);
    let mut large = png(10, 10);
    large.resize(4 << 20, 0);
    for (bytes, why) in [
        (png(9000, 10), "9000×10 pixels"),
        (b"\x89PNG\r\n\x1a\n".to_vec(), "is broken"),
        (large, "more than 3932160 bytes"),
        (b"RIFF\0\0\0\0WAVE".to_vec(), "is not text"),
    ] {
        let refused = read(&bytes);
        assert!(
            refused.is_error && refused.images.is_empty() && refused.content.contains(why),
            "{refused:?}"
        );
    }
}
