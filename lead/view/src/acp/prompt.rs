//! The content of a prompt as the text of a message.

use agent_client_protocol_schema::v1::{ContentBlock, EmbeddedResourceResource, Error};

use super::errors::invalid;

/// How the address of a local file begins.
const FILE: &str = "file://";

/// Returns the text of a prompt.
///
/// # Errors
/// If it is blank, or has something that no message can carry.
pub(super) fn text_of(blocks: &[ContentBlock]) -> Result<String, Error> {
    let mut text = String::new();
    for block in blocks {
        match block {
            ContentBlock::Text(block) => text.push_str(&block.text),
            ContentBlock::ResourceLink(link) => {
                if text.ends_with(|last: char| !last.is_whitespace()) {
                    text.push(' ');
                }
                text.push_str(&format!("@{}", shown(&link.uri)));
            }
            ContentBlock::Resource(embedded) => match &embedded.resource {
                EmbeddedResourceResource::TextResourceContents(resource) => {
                    text.push_str(&embed(shown(&resource.uri), &resource.text));
                }
                _ => return Err(not_taken("binary resources")),
            },
            ContentBlock::Image(_) => return Err(not_taken("images")),
            ContentBlock::Audio(_) => return Err(not_taken("sounds")),
            _ => return Err(not_taken("such parts")),
        }
    }
    if text.trim().is_empty() {
        return Err(invalid("the prompt is empty"));
    }
    Ok(text)
}

/// Returns a file by its path, and anything else by its address. An address with escapes stays as it
/// is.
fn shown(uri: &str) -> &str {
    match uri.strip_prefix(FILE) {
        Some(path) if path.starts_with('/') && !path.contains(['%', '#', '?']) => path,
        _ => uri,
    }
}

fn embed(name: &str, content: &str) -> String {
    let end = if content.ends_with('\n') { "" } else { "\n" };
    format!("\n<resource name={name:?}>\n{content}{end}</resource>\n")
}

fn not_taken(what: &str) -> Error {
    invalid(&format!(
        "a message carries no {what}: put them into a file in the workspace, and name the file"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(blocks: Value) -> Result<String, String> {
        let blocks: Vec<ContentBlock> = serde_json::from_value(blocks).unwrap();
        text_of(&blocks).map_err(|error| error.message)
    }

    #[test]
    fn links_stand_where_they_were_and_resources_are_in_the_text() {
        let link = |uri: &str| json!({"type": "resource_link", "name": "a.rs", "uri": uri});
        let said = |text: &str| json!({"type": "text", "text": text});
        let look = text(json!([
            said("look at "),
            link("file:///w/a.rs"),
            said(" now")
        ]));
        assert_eq!(look.unwrap(), "look at @/w/a.rs now");
        let other = text(json!([link("file:///w/a%20b"), link("https://a.example")]));
        assert_eq!(other.unwrap(), "@file:///w/a%20b @https://a.example");
        let resource = json!({"type": "resource", "resource": {"uri": "file:///w/b", "text": "x"}});
        let with = text(json!([said("read"), resource])).unwrap();
        assert_eq!(with, "read\n<resource name=\"/w/b\">\nx\n</resource>\n");
    }

    #[test]
    fn what_no_message_carries_is_refused_with_the_way_out() {
        let image = json!([{"type": "image", "data": "", "mimeType": "image/png"}]);
        assert!(text(image).unwrap_err().contains("name the file"));
        let blob = json!([{"type": "resource", "resource": {"uri": "a", "blob": "AA=="}}]);
        assert!(text(blob).unwrap_err().contains("binary"));
        assert!(text(json!([])).unwrap_err().contains("is empty"));
    }
}
