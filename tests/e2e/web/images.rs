//! The images in the results of calls, on the page.

use serde_json::{Value, json};

use super::Page;
use crate::support::Team;
use crate::support::browser::drive;

/// A PNG of one pixel, in base64.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`, in base64.
const SCRIPT: &str =
    "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0iYWxlcnQoMSkiLz4=";
/// The head of a GIF of 65535×65535 pixels, in base64.
const BOMB: &str = "R0lGODlh//////8AAAAAAAAAAAAAAAAA";

/// A team whose teammate ana has called a tool for each of these, in a transcript that a hostile
/// worker wrote.
fn team_with(images: &[Value]) -> Team {
    let team = Team::started();
    team.spawn("ana", "");
    team.wait_for("ana", "idle");
    team.teamd(["stop", "--force"]).ok();
    let usage = json!({"input_tokens": 3, "output_tokens": 5, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0});
    let mut all = String::new();
    for (number, image) in images.iter().enumerate() {
        let call =
            json!({"type": "tool_use", "id": format!("c{number}"), "name": "look", "input": {}});
        let events = [
            json!({"entry": "answer", "usage": usage, "content": [call]}),
            json!({"entry": "result", "tool_use_id": format!("c{number}"), "is_error": false,
                "content": "seen\n[image: png, 70B]", "images": [image]}),
        ];
        for mut entry in events {
            entry["at"] = json!(1.0);
            entry["inbox"] = json!({"offset": 0, "tail": "cbf29ce484222325"});
            all += &format!("{entry}\n");
        }
    }
    team.put("transcript/ana.jsonl", &all);
    team
}

#[test]
fn an_image_is_served_with_the_key_alone_and_nothing_else_is_served_as_one() {
    let image = |kind: &str, data: &str| json!({"media_type": kind, "data": data});
    let team = team_with(&[
        image("image/png", PNG),
        image("image/png", SCRIPT),
        image("image/gif", PNG),
        image("image/gif", BOMB),
        image("image/svg+xml", SCRIPT),
    ]);
    let page = Page::of(&team, &["--read-only"]);
    let shown = page.view("view=conversation&name=ana");
    let results: Vec<&Value> = shown["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|part| part["kind"] == "result")
        .collect();
    let said: Vec<&Value> = results
        .iter()
        .map(|result| &result["images"][0]["text"])
        .collect();
    assert_eq!(
        said,
        [
            "image: PNG, 1×1, 70B",
            "image: PNG, not shown: it is not what it says",
            "image: GIF, not shown: it is not what it says",
            "image: GIF, not shown: it has too many pixels",
        ],
        "an entry with an image of another kind is none"
    );
    let address = |result: &Value, number: usize| {
        let at = result["at"].as_str().unwrap();
        format!("/image?name=ana&at={at}&number={number}")
    };
    let ours = address(results[0], 0);
    let served = page.get(&ours);
    assert_eq!(served.code, 200);
    for header in [
        "content-type: image/png\r\n",
        "x-content-type-options: nosniff",
        "default-src 'none'",
        "img-src 'self';",
        "cross-origin-resource-policy: same-origin",
    ] {
        assert!(served.head.contains(header), "{header}: {}", served.head);
    }
    let port = page.port;
    let keyless = format!("GET {ours} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
    assert_eq!(page.raw(keyless.as_bytes()).code, 401);
    let mut refused: Vec<String> = results[1..]
        .iter()
        .map(|result| address(result, 0))
        .collect();
    refused.push(address(results[0], 1));
    let call = &shown["parts"][0];
    assert_eq!(call["kind"], "call");
    refused.push(address(call, 0));
    refused.push(ours.replace("name=ana", "name=lead"));
    for address in refused {
        let answer = page.get(&address);
        assert_eq!(answer.code, 404, "{address}: {}", answer.body);
        assert!(answer.head.contains("content-type: application/json"));
    }
    let lines = team.teamctl(["transcript", "ana"]).ok().stdout;
    assert!(lines.contains("[image: PNG, 1×1, 70B]"), "{lines}");
}

#[test]
fn a_browser_paints_an_image_and_nothing_that_is_none() {
    let team = team_with(&[
        json!({"media_type": "image/png", "data": PNG}),
        json!({"media_type": "image/png", "data": SCRIPT}),
    ]);
    let page = Page::of(&team, &["--read-only"]);
    let Some(said) = drive("images.mjs", &[&page.url]) else {
        return;
    };
    let steps: Vec<&str> = said.lines().collect();
    assert_eq!(
        steps,
        [
            "painted: image: PNG, 1×1, 70B of 1×1",
            "said: image: PNG, not shown: it is not what it says",
            "output: seen",
            "full size: 1×1",
            "served as image/svg+xml: this image cannot be shown",
            "served as image/png: this image cannot be shown",
            "served as text/html: this image cannot be shown",
            "elements: 0",
        ]
    );
}
