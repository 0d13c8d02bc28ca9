//! The images in the results of calls: what is said of one, and its bytes.
//!
//! A transcript says what an image is, and a server of others has made it. So it is shown only if
//! its bytes are what it says, and if a browser has room for it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use teamd_shared::amount::format_size;
use teamd_shared::image::{Image, ImageType, MAX_IMAGE, placeholder};

/// The most pixels that are shown: 128 MB in a browser. A small file can claim more than a machine
/// has room for.
const MOST_PIXELS: usize = 32 << 20;

/// What is said of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// One line, such as `image: PNG, 640×480, 12KB`.
    pub text: String,
    /// How large it is; none if it is not shown.
    pub size: Option<PixelSize>,
}

/// How many pixels an image has each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelSize {
    /// From left to right.
    pub width: usize,
    /// From top to bottom.
    pub height: usize,
}

/// An image that is shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadImage {
    pub(crate) kind: ImageType,
    pub(crate) bytes: Vec<u8>,
    pub(crate) size: PixelSize,
}

impl ReadImage {
    /// Reads an image.
    ///
    /// # Errors
    /// Why it is not shown.
    pub(crate) fn of(image: &Image) -> Result<Self, &'static str> {
        if image.data.len() > MAX_IMAGE {
            return Err("it is too large");
        }
        let bytes = STANDARD
            .decode(&image.data)
            .map_err(|_| "it is no base64")?;
        if ImageType::of_bytes(&bytes) != Some(image.media_type) {
            return Err("it is not what it says");
        }
        let size = imagesize::blob_size(&bytes).map_err(|_| "it is broken")?;
        let pixels = size.width.checked_mul(size.height);
        let size = PixelSize {
            width: size.width,
            height: size.height,
        };
        match pixels {
            Some(1..=MOST_PIXELS) => Ok(Self {
                kind: image.media_type,
                bytes,
                size,
            }),
            Some(0) => Err("it is empty"),
            _ => Err("it has too many pixels"),
        }
    }
}

impl ImageFacts {
    fn of(image: &Image, read: &Result<ReadImage, &'static str>) -> Self {
        let name = name(image.media_type);
        let text = match read {
            Ok(read) => {
                let PixelSize { width, height } = read.size;
                let size = format_size(u64::try_from(read.bytes.len()).unwrap_or(u64::MAX));
                format!("image: {name}, {width}×{height}, {size}B")
            }
            Err(why) => format!("image: {name}, not shown: {why}"),
        };
        Self {
            text,
            size: read.as_ref().ok().map(|read| read.size),
        }
    }
}

/// Returns what is said of each image of a result, and the text of the result with that in the
/// place of what stands for the images.
pub(crate) fn described(content: &str, images: &[Image]) -> (String, Vec<ImageFacts>) {
    let mut text = content.to_owned();
    let mut all = Vec::new();
    for image in images {
        let read = ReadImage::of(image);
        let facts = ImageFacts::of(image, &read);
        if let Ok(read) = &read {
            let stands_for_it = placeholder(read.kind, read.bytes.len());
            text = text.replacen(&stands_for_it, &format!("[{}]", facts.text), 1);
        }
        all.push(facts);
    }
    (text, all)
}

fn name(kind: ImageType) -> &'static str {
    match kind {
        ImageType::Png => "PNG",
        ImageType::Jpeg => "JPEG",
        ImageType::Webp => "WebP",
        ImageType::Gif => "GIF",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(media_type: ImageType, bytes: &[u8]) -> Image {
        Image {
            media_type,
            data: STANDARD.encode(bytes),
        }
    }

    /// Makes a GIF of this size, as far as its head tells.
    fn gif(width: u16, height: u16) -> Vec<u8> {
        [
            b"GIF89a".as_slice(),
            &width.to_le_bytes(),
            &height.to_le_bytes(),
            &[0; 16],
        ]
        .concat()
    }

    #[test]
    fn an_image_is_said_in_a_line_with_its_size() {
        let first = image(ImageType::Gif, &gif(640, 480));
        let (text, facts) = described("look\n[image: gif, 26B]\n[image: gif, 26B]", &[first]);
        assert_eq!(text, "look\n[image: GIF, 640×480, 26B]\n[image: gif, 26B]");
        assert_eq!(facts[0].text, "image: GIF, 640×480, 26B");
        let size = PixelSize {
            width: 640,
            height: 480,
        };
        assert_eq!(facts[0].size, Some(size));
    }

    #[test]
    fn what_is_no_image_of_its_kind_is_not_shown() {
        let svg = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>";
        let large = Image {
            media_type: ImageType::Gif,
            data: "A".repeat(MAX_IMAGE + 4),
        };
        let broken = Image {
            media_type: ImageType::Gif,
            data: "<svg>".to_owned(),
        };
        for (shown, why) in [
            (image(ImageType::Png, svg), "it is not what it says"),
            (image(ImageType::Png, &gif(1, 1)), "it is not what it says"),
            (image(ImageType::Gif, b"GIF89a"), "it is broken"),
            (image(ImageType::Gif, &gif(0, 9)), "it is empty"),
            (
                image(ImageType::Gif, &gif(65535, 65535)),
                "it has too many pixels",
            ),
            (large, "it is too large"),
            (broken, "it is no base64"),
        ] {
            assert_eq!(ReadImage::of(&shown), Err(why));
            let (_, facts) = described("", &[shown]);
            assert!(facts[0].text.ends_with(why) && facts[0].size.is_none());
        }
    }
}
