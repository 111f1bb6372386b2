//! Resolution of symbolic links in the paths of agents.

use std::path::{Component, Path, PathBuf};

/// The limit for the links followed from one path.
const LINKS_MAX: usize = 8;

/// Resolves the links in the directories of a path. If the path is a link, also returns its chain of targets.
pub(super) fn linked_places(path: &Path) -> Vec<PathBuf> {
    // Agents resolve `..` lexically, even after a link.
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

/// Resolves the links in the existing directories of a path.
fn without_links(path: &Path) -> PathBuf {
    let Some((parent, name)) = path.parent().zip(path.file_name()) else { return path.to_owned() };
    parent.canonicalize().unwrap_or_else(|_| without_links(parent)).join(name)
}
