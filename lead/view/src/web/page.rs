//! The files of the page, which are part of the program.

/// A file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asset {
    path: &'static str,
    pub(super) kind: &'static str,
    pub(super) text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml; charset=utf-8";

/// All of them.
const ASSETS: [Asset; 28] = [
    Asset {
        path: "/",
        kind: HTML,
        text: include_str!("page/index.html"),
    },
    Asset {
        path: "/style.css",
        kind: CSS,
        text: include_str!("page/style.css"),
    },
    Asset {
        path: "/icon.svg",
        kind: SVG,
        text: include_str!("page/icon.svg"),
    },
    Asset {
        path: "/main.js",
        kind: JS,
        text: include_str!("page/main.js"),
    },
    Asset {
        path: "/element.js",
        kind: JS,
        text: include_str!("page/element.js"),
    },
    Asset {
        path: "/server.js",
        kind: JS,
        text: include_str!("page/server.js"),
    },
    Asset {
        path: "/views.js",
        kind: JS,
        text: include_str!("page/views.js"),
    },
    Asset {
        path: "/sequence.js",
        kind: JS,
        text: include_str!("page/sequence.js"),
    },
    Asset {
        path: "/timeline.js",
        kind: JS,
        text: include_str!("page/timeline.js"),
    },
    Asset {
        path: "/cost.js",
        kind: JS,
        text: include_str!("page/cost.js"),
    },
    Asset {
        path: "/board.js",
        kind: JS,
        text: include_str!("page/board.js"),
    },
    Asset {
        path: "/cards.js",
        kind: JS,
        text: include_str!("page/cards.js"),
    },
    Asset {
        path: "/comments.js",
        kind: JS,
        text: include_str!("page/comments.js"),
    },
    Asset {
        path: "/conversation.js",
        kind: JS,
        text: include_str!("page/conversation.js"),
    },
    Asset {
        path: "/dialog.js",
        kind: JS,
        text: include_str!("page/dialog.js"),
    },
    Asset {
        path: "/diff.js",
        kind: JS,
        text: include_str!("page/diff.js"),
    },
    Asset {
        path: "/first.js",
        kind: JS,
        text: include_str!("page/first.js"),
    },
    Asset {
        path: "/form.js",
        kind: JS,
        text: include_str!("page/form.js"),
    },
    Asset {
        path: "/image.js",
        kind: JS,
        text: include_str!("page/image.js"),
    },
    Asset {
        path: "/keys.js",
        kind: JS,
        text: include_str!("page/keys.js"),
    },
    Asset {
        path: "/orders.js",
        kind: JS,
        text: include_str!("page/orders.js"),
    },
    Asset {
        path: "/overview.js",
        kind: JS,
        text: include_str!("page/overview.js"),
    },
    Asset {
        path: "/parts.js",
        kind: JS,
        text: include_str!("page/parts.js"),
    },
    Asset {
        path: "/requests.js",
        kind: JS,
        text: include_str!("page/requests.js"),
    },
    Asset {
        path: "/review.js",
        kind: JS,
        text: include_str!("page/review.js"),
    },
    Asset {
        path: "/send.js",
        kind: JS,
        text: include_str!("page/send.js"),
    },
    Asset {
        path: "/task.js",
        kind: JS,
        text: include_str!("page/task.js"),
    },
    Asset {
        path: "/teammate.js",
        kind: JS,
        text: include_str!("page/teammate.js"),
    },
];

/// What a browser must not do with the page: run or load anything else, make nodes of text, show it
/// within another page.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Finds a file.
pub(super) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a browser learns of a module only when it has read the one that needs it. What only
    /// other views need would delay the first one.
    #[test]
    fn the_page_names_at_once_each_module_that_the_first_view_needs_and_no_other() {
        let page = find("/").unwrap().text;
        let mut needed = vec!["main.js"];
        let mut at = 0;
        while let Some(module) = needed.get(at) {
            at += 1;
            let text = find(&format!("/{module}")).unwrap().text;
            let imports = text.split("from './").skip(1);
            for name in imports.filter_map(|rest| Some(rest.split_once("';")?.0)) {
                if !needed.contains(&name) {
                    needed.push(name);
                }
            }
        }
        for asset in ASSETS.iter().filter(|asset| asset.kind == JS) {
            let name = asset.path.trim_start_matches('/');
            let how = if matches!(name, "first.js" | "main.js") {
                format!("<script type=\"module\" src=\"{name}\">")
            } else {
                format!("<link rel=\"modulepreload\" href=\"{name}\">")
            };
            assert_eq!(page.contains(&how), needed.contains(&name), "{name}");
        }
    }

    /// The policy forbids all of this: it would not work, or it would be a way in.
    #[test]
    fn the_page_makes_no_nodes_of_text_and_loads_nothing_from_elsewhere() {
        for asset in &ASSETS {
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "https://",
                "style=",
                "onclick=",
                "localStorage",
                "document.cookie",
            ] {
                assert!(!asset.text.contains(bad), "{} has {bad}", asset.path);
            }
        }
    }
}
