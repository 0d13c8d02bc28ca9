//! What a model gets of the result of a tool: text, images, and a word about everything else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use teamd_shared::amount::format_size;
use teamd_shared::image::{Image, ImageType, MAX_IMAGE, placeholder};
use teamd_worker_core::mcp::visible;
use teamd_worker_core::tools::Outcome;

/// How much of a result a model gets, in bytes.
pub(super) const MAX_RESULT: usize = 100_000;

/// How many images of a result a model gets.
const MOST_IMAGES: usize = 5;

/// Makes the outcome of a call.
pub(super) fn outcome_of(result: CallToolResult) -> Outcome {
    let mut parts: Vec<String> = Vec::new();
    let mut images = Vec::new();
    for content in &result.content {
        let ContentBlock::Image(image) = content else {
            parts.push(text_of(content));
            continue;
        };
        match image_of(&image.data, images.len()) {
            Ok((text, image)) => {
                parts.push(text);
                images.push(image);
            }
            Err(text) => parts.push(text),
        }
    }
    if parts.is_empty()
        && let Some(structured) = &result.structured_content
    {
        parts.push(structured.to_string());
    }
    let text = visible(&parts.join("\n"));
    let content = if text.is_empty() {
        "(no content)".to_owned()
    } else {
        text
    };
    Outcome {
        content,
        is_error: result.is_error.unwrap_or(false),
        images,
        killed_for_memory: None,
    }
}

/// Reads an image behind so many others: the text in its place, and the image. What it is tells its
/// beginning, not its server.
///
/// # Errors
/// The text in its place, if it is not shown.
fn image_of(data: &str, before: usize) -> Result<(String, Image), String> {
    let size = format_size(u64::try_from(data.len()).unwrap_or(u64::MAX));
    if data.len() > MAX_IMAGE {
        let most = format_size(MAX_IMAGE as u64);
        return Err(format!(
            "[an image of {size}B in base64: more than {most}B are not shown]"
        ));
    }
    if before >= MOST_IMAGES {
        return Err(format!(
            "[an image of {size}B in base64: more than {MOST_IMAGES} in a result are not shown]"
        ));
    }
    let Ok(bytes) = STANDARD.decode(data) else {
        return Err("[an image that is no base64: not shown]".to_owned());
    };
    let Some(media_type) = ImageType::of_bytes(&bytes) else {
        return Err("[an image that is no PNG, JPEG, WebP or GIF: not shown]".to_owned());
    };
    let image = Image {
        media_type,
        data: data.to_owned(),
    };
    Ok((placeholder(media_type, bytes.len()), image))
}

fn text_of(content: &ContentBlock) -> String {
    match content {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Audio(audio) => format!("[audio, {}: not shown]", audio.mime_type),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("{uri}\n{text}"),
            ResourceContents::BlobResourceContents { uri, .. } => {
                format!("[{uri}: not text, and not shown]")
            }
            _ => "[a resource that is not shown]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[{}: {}]", link.name, link.uri),
        _ => "[content of a kind that is not shown]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn outcome(result: serde_json::Value) -> Outcome {
        outcome_of(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn a_result_reaches_the_model_as_visible_text() {
        let told = outcome(json!({"content": [
            {"type": "text", "text": "one\u{1b}[2J\u{202e}"},
            {"type": "image", "mimeType": "image/png", "data": "aGk="},
            {"type": "resource", "resource": {"uri": "file:///x", "text": "two"}},
        ]}));
        let expected =
            "one[2J\n[an image that is no PNG, JPEG, WebP or GIF: not shown]\nfile:///x\ntwo";
        assert_eq!(told, Outcome::ok(expected));
        let structured =
            outcome(json!({"content": [], "structuredContent": {"a": 1}, "isError": true}));
        assert_eq!(structured, Outcome::error("{\"a\":1}"));
        assert_eq!(outcome(json!({"content": []})).content, "(no content)");
    }

    #[test]
    fn an_image_is_taken_for_what_it_is_and_a_large_one_is_named() {
        let png = STANDARD.encode(b"\x89PNG\r\n\x1a\n and more");
        let of = |data: &str| json!({"type": "image", "mimeType": "text/html", "data": data});
        let told = outcome(json!({"content": [of(&png), of("?")]}));
        assert_eq!(
            told.content,
            "[image: png, 17B]\n[an image that is no base64: not shown]"
        );
        let image = Image {
            media_type: ImageType::Png,
            data: png.clone(),
        };
        assert_eq!(told.images, [image]);
        let large = "A".repeat(MAX_IMAGE + 4);
        let told = outcome(json!({"content": [of(&large)]}));
        assert_eq!(
            (told.content.as_str(), told.images.len()),
            (
                "[an image of 5MB in base64: more than 5MB are not shown]",
                0
            )
        );
        let many = outcome(json!({"content": vec![of(&png); 6]}));
        assert_eq!(many.images.len(), 5);
        assert!(
            many.content
                .ends_with("more than 5 in a result are not shown]")
        );
    }
}
