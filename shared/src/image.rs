//! An image in the result of a call: a model that takes images sees it, and everything else shows
//! the text in its place.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::amount::format_size;

/// The largest image that a model is shown, in bytes of base64: Anthropic's limit.
pub const MAX_IMAGE: usize = 5 << 20;

/// The kinds of images that models take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImageType {
    /// PNG.
    #[serde(rename = "image/png")]
    Png,
    /// JPEG.
    #[serde(rename = "image/jpeg")]
    Jpeg,
    /// WebP.
    #[serde(rename = "image/webp")]
    Webp,
    /// GIF.
    #[serde(rename = "image/gif")]
    Gif,
}

impl ImageType {
    /// Returns its name as a media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
            Self::Gif => "image/gif",
        }
    }

    /// Finds out what an image is by how it begins; none if it is no image that models take.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            return Some(Self::Png);
        }
        if bytes.starts_with(b"\xff\xd8\xff") {
            return Some(Self::Jpeg);
        }
        if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            return Some(Self::Gif);
        }
        let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
        is_webp.then_some(Self::Webp)
    }
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// What it is.
    pub media_type: ImageType,
    /// Its bytes, in base64.
    pub data: String,
}

impl Image {
    /// Returns it as an address that holds it.
    pub fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type.media_type(), self.data)
    }
}

/// Returns the text that stands for an image of so many bytes.
pub fn placeholder(kind: ImageType, bytes: usize) -> String {
    let name = kind.media_type().trim_start_matches("image/");
    let size = format_size(u64::try_from(bytes).unwrap_or(u64::MAX));
    format!("[image: {name}, {size}B]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_how_it_begins() {
        for (bytes, kind) in [
            (&b"\x89PNG\r\n\x1a\n..."[..], Some(ImageType::Png)),
            (b"\xff\xd8\xff\xe0", Some(ImageType::Jpeg)),
            (b"GIF89a", Some(ImageType::Gif)),
            (b"RIFF....WEBPVP8 ", Some(ImageType::Webp)),
            (b"RIFF....WAVE", None),
            (b"<svg>", None),
            (b"", None),
        ] {
            assert_eq!(ImageType::of_bytes(bytes), kind);
        }
        assert_eq!(placeholder(ImageType::Png, 34 << 10), "[image: png, 34KB]");
        assert_eq!(placeholder(ImageType::Jpeg, 70), "[image: jpeg, 70B]");
    }
}
