use std::io::{Read, Write};
use std::net::TcpListener;

use super::*;

/// Serves one answer a connection, whatever is asked.
fn serve(answers: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut connection, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            let mut buffer = [0; 4096];
            // The body of these small prompts ends with the object's brace.
            while !asked.ends_with(b"}") {
                let read = connection.read(&mut buffer).unwrap();
                asked.extend_from_slice(&buffer[..read]);
            }
            connection.write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

fn stream(events: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}"
    )
}

fn service(url: &str) -> (tempfile::TempDir, ModelService) {
    service_of("openai:fake", url)
}

fn service_of(model: &str, url: &str) -> (tempfile::TempDir, ModelService) {
    let scratch = tempfile::tempdir().unwrap();
    let dir = Arc::new(TeamDir::create(&scratch.path().join(".team")).unwrap());
    let environment = Environment {
        variables: ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"]
            .map(|name| (name.as_bytes().to_vec(), url.as_bytes().to_vec()))
            .to_vec(),
        secrets: ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"]
            .map(|name| (name.as_bytes().to_vec(), b"sk-secret".to_vec()))
            .to_vec(),
        umask: 0o22,
    };
    let spec = model.parse().unwrap();
    let service = ModelService::new(
        &spec,
        Access {
            dir: &dir,
            environment: &environment,
        },
    )
    .unwrap();
    (scratch, service)
}

fn ask(service: &mut ModelService) -> (Result<ModelAnswer, ModelError>, String) {
    ask_since(service, Instant::now(), None)
}

fn ask_since(
    service: &mut ModelService,
    began: Instant,
    budget: Option<u64>,
) -> (Result<ModelAnswer, ModelError>, String) {
    let turns = [PromptTurn {
        role: Role::User,
        parts: vec![TurnPart::Text("hi".to_owned())],
    }];
    let prompt = Prompt {
        system: "",
        tools: &[],
        turns: &turns,
        max_output: None,
    };
    let mut all = String::new();
    let mut heard = |heard: Progress<'_>| match heard {
        Progress::Text(text) => all.push_str(text),
        Progress::Again => all.push('|'),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let budget = Budget {
        turns: 1,
        asks_itself: false,
        tokens: budget,
        cost: None,
        total: Default::default(),
    };
    let answer = runtime.block_on(service.ask(began, &prompt, budget, &mut heard));
    (answer, all)
}

const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
const WHOLE: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"whole\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

#[test]
fn a_listener_hears_that_an_answer_begins_anew_and_its_cost_is_never_nothing() {
    let url = serve(vec![stream(HALF), stream(WHOLE)]);
    let (_scratch, mut service) = service(&url);
    let (answer, heard) = ask(&mut service);
    assert_eq!(heard, "half|whole");
    let usage = answer.unwrap().usage;
    assert!(
        usage.input_tokens > 10 && usage.output_tokens == 2,
        "{usage:?}"
    );
    assert!(!format!("{service:?}").contains("sk-secret"));
}

#[test]
fn a_whole_answer_is_taken_though_its_stream_breaks_off_or_falls_silent() {
    let events = WHOLE.replace("data: [DONE]\n\n", "");
    let length = events.len();
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let broken = format!("{head}{length:x}\r\n{events}\r\n");
    let complains = format!("{events}data: {{\"error\":\"oops\"}}\n\n");
    for answer in [broken.clone(), stream(&complains), stream(&events)] {
        let (_scratch, mut service) = service(&serve(vec![answer]));
        let (answer, heard) = ask(&mut service);
        assert_eq!(heard, "whole");
        assert!(answer.unwrap().usage.output_tokens > 0);
    }
    // One that is not complete is not taken.
    let half = format!("{head}{:x}\r\n{HALF}\r\n", HALF.len());
    let (_scratch, mut service) = service(&serve(vec![half, broken]));
    assert_eq!(ask(&mut service).1, "half|whole");
}

#[test]
fn a_whole_answer_is_not_waited_for_when_its_stream_stays_open() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (release, held) = std::sync::mpsc::channel::<()>();
    let server = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut buffer = [0; 1 << 16];
        assert!(connection.read(&mut buffer).unwrap() > 0);
        connection
            .write_all(stream(&WHOLE.replace("data: [DONE]\n\n", "")).as_bytes())
            .unwrap();
        // Until the answer was taken.
        assert!(held.recv().is_err());
    });
    let (_scratch, mut service) = service(&url);
    assert!(ask(&mut service).0.is_ok());
    drop(release);
    server.join().unwrap();
}

#[test]
fn what_a_server_does_not_know_is_left_out() {
    let body = "{\"error\":\"no stream_options!\"}";
    let length = body.len();
    let refusal =
        format!("HTTP/1.1 400 Bad\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    let url = serve(vec![refusal, stream(WHOLE)]);
    let (_scratch, mut service) = service(&url);
    assert_eq!(ask(&mut service).1, "whole");
}

#[test]
fn a_service_that_sends_us_elsewhere_is_not_followed_with_the_key() {
    let url = serve(vec![
        "HTTP/1.1 302 Found\r\nlocation: http://evil.invalid/\r\ncontent-length: 0\r\n\r\n"
            .to_owned(),
    ]);
    let (_scratch, mut service) = service(&url);
    let error = ask(&mut service).0.unwrap_err();
    assert!(
        error.to_string().contains("it redirects (status 302)"),
        "{error}"
    );
}

#[test]
fn an_answer_without_an_end_is_refused() {
    let url = serve(vec![stream(&format!("data: {}", "x".repeat(5 << 20)))]);
    let (_scratch, mut service) = service(&url);
    let error = ask(&mut service).0.unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}

/// What is said of an answer that is none, after the first attempt.
fn told(answer: &str) -> String {
    let url = serve(vec![answer.to_owned()]);
    let (_scratch, mut service) = service(&url);
    ask(&mut service).0.unwrap_err().to_string()
}

#[test]
fn what_holds_no_answer_is_named_and_not_repeated() {
    for (answer, said) in [
        (
            "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n",
            "answered with status 204, which holds no answer",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n\u{1f}abc",
            "an encoded body (gzip) is no answer",
        ),
        (
            "HTTP/1.1 403 No\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n\r\n<html>no</html>",
            "a page (text/html) (403)",
        ),
    ] {
        let error = told(answer);
        assert!(error.contains(said) && !error.contains("<html>"), "{error}");
    }
}

#[test]
fn only_the_content_of_an_answer_counts_as_its_length() {
    let url = serve(vec![stream(&format!(
        "{}{WHOLE}",
        format!(": {}\n", "x".repeat(1 << 20)).repeat(20)
    ))]);
    let (_scratch, mut service) = service(&url);
    assert_eq!(ask(&mut service).1, "whole");
    let piece = format!(
        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(1 << 20)
    );
    let error = told(&stream(&piece.repeat(17)));
    assert!(
        error.contains("stopped reading") && error.contains("16 MiB"),
        "{error}"
    );
}

/// A piece of an answer of Anthropic's, which costs 10 + 3 tokens and 1000 from a cache.
fn piece(stop: &str) -> String {
    let usage = r#"{"input_tokens":10,"cache_read_input_tokens":1000,"output_tokens":3}"#;
    let body = format!(
        r#"{{"content":[{{"type":"text","text":"on "}}],"stop_reason":"{stop}","usage":{usage}}}"#
    );
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{body}")
}

fn fails(status: u16) -> String {
    format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

/// A service of Anthropic's kind with these answers.
fn pausing(answers: Vec<String>) -> (tempfile::TempDir, ModelService) {
    service_of("anthropic:fake", &serve(answers))
}

#[test]
fn what_pieces_cost_is_known_though_their_answer_fails() {
    let (_scratch, mut service) =
        pausing(vec![piece("pause_turn"), piece("pause_turn"), fails(400)]);
    assert!(matches!(
        ask(&mut service).0.unwrap_err(),
        ModelError::Refused(_)
    ));
    let charged = service.take_unrecorded();
    assert_eq!(
        (
            charged.input_tokens,
            charged.cache_read_input_tokens,
            charged.output_tokens
        ),
        (20, 2000, 6)
    );
    assert!(service.take_unrecorded().is_nothing());
    let (_scratch, mut service) = pausing(vec![
        piece("pause_turn");
        usize::try_from(MAX_PAUSES).unwrap() + 1
    ]);
    assert!(
        ask(&mut service)
            .0
            .unwrap_err()
            .to_string()
            .contains("paused")
    );
    assert_eq!(
        service.take_unrecorded().input_tokens,
        110,
        "the last piece was charged, too"
    );
    let (_scratch, mut service) = pausing(vec![piece("pause_turn"), piece("end_turn")]);
    let whole = ask(&mut service).0.unwrap();
    assert_eq!((whole.usage.input_tokens, whole.length), (20, Some(1013)));
    assert!(service.take_unrecorded().is_nothing(), "the answer says it");
}

#[test]
fn an_answer_whose_budget_is_spent_is_not_gone_on_with_and_a_whole_one_is_never_given_up() {
    for (budget, cost) in [(26, 26), (27, 39)] {
        let (_scratch, mut service) = pausing(vec![piece("pause_turn"); 3]);
        assert_eq!(
            ask_since(&mut service, Instant::now(), Some(budget)).0,
            Err(ModelError::Spent)
        );
        assert_eq!(service.take_unrecorded().billed(), cost);
    }
    let (_scratch, mut service) = pausing(vec![piece("end_turn")]);
    assert!(ask_since(&mut service, Instant::now(), Some(1)).0.is_ok());
}

#[test]
fn what_an_earlier_call_cost_stays_until_it_is_taken_out() {
    let answers = vec![
        piece("pause_turn"),
        fails(400),
        piece("pause_turn"),
        piece("end_turn"),
    ];
    let (_scratch, mut service) = pausing(answers);
    assert!(ask(&mut service).0.is_err() && ask(&mut service).0.is_ok());
    assert_eq!(service.take_unrecorded().billed(), 13);
}

#[test]
fn all_pieces_of_an_answer_have_one_deadline() {
    let answers = || vec![piece("pause_turn"), fails(500), piece("end_turn")];
    let (_scratch, mut service) = pausing(answers());
    assert!(ask(&mut service).0.is_ok());
    let (_scratch, mut service) = pausing(answers());
    let error = ask_since(&mut service, Instant::now() - GIVE_UP, None)
        .0
        .unwrap_err();
    assert!(error.to_string().contains("1 attempt failed"), "{error}");
}

#[test]
fn a_paused_answer_that_says_nothing_is_asked_for_again_and_calls_end_one() {
    let body = r#"{"content":[],"stop_reason":"pause_turn"}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    let (_scratch, mut service) = pausing(vec![format!("{head}{body}"), piece("end_turn")]);
    assert_eq!(ask(&mut service).1, "on ");
    let call = r#"{"type":"tool_use","id":"1","name":"bash","input":{}}"#;
    let body = format!(r#"{{"content":[{call}],"stop_reason":"pause_turn"}}"#);
    let (_scratch, mut service) = pausing(vec![format!("{head}{body}")]);
    let whole = ask(&mut service).0.unwrap();
    assert_eq!(
        (whole.content.len(), whole.length),
        (1, None),
        "what it cost says its length"
    );
}

#[test]
fn chance_lies_between_nothing_and_one() {
    assert!(
        (0..100)
            .map(|_| random())
            .all(|number| (0.0..1.0).contains(&number))
    );
}
