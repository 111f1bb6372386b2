//! Places on the disk that a path with symbolic links in it means.

use std::path::{Component, Path, PathBuf};

/// Links that are followed from one path.
const LINKS_MAX: usize = 8;

/// Returns the place of a path, without links in its directories, and that which it leads to if it is a link itself.
pub(super) fn linked_places(path: &Path) -> Vec<PathBuf> {
    // Agents take `..` from a path, and do not follow the link before it.
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    let mut place = without_links(&plain);
    let mut places = vec![place.clone()];
    for _ in 1..LINKS_MAX {
        let Some(target) = place.read_link().ok().zip(place.parent()).map(|(target, of)| of.join(target)) else {
            break;
        };
        place = without_links(&target);
        places.push(place.clone());
    }
    places
}

/// Returns a path without links in its directories, as far as these exist.
fn without_links(path: &Path) -> PathBuf {
    let Some((parent, name)) = path.parent().zip(path.file_name()) else { return path.to_owned() };
    parent.canonicalize().unwrap_or_else(|_| without_links(parent)).join(name)
}
