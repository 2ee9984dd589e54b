//! The size of the pages of a GPU's memory pools with which a run needs the least memory.
//!
//! Pools cut tensors from pages of one size, and the tail of each page that no tensor fits is lost. Pages that the largest
//! tensor fills lost 1 to 13 % in most shipped configurations, and 8 larger pages 0.3 to 6 %, with less dependence on which
//! tensors lie beside each other. One page for all would lose the least, but a run that needs a little more than was simulated would take a second. And
//! for each allocation the host looks through the pages, and moves the entries of all tensors of one page: 16 to 32 pages take
//! it the least time (docs/log/memory-accuracy.md, "The size of the pages of a GPU").

use plimsoll_core::Bytes;

/// Numbers of pages that are tried, the best for most runs first.
pub(crate) const COUNTS: [u64; 3] = [16, 8, 4];
/// Factor by which the memory with fewer pages has to be smaller to be taken: where a run needs one page more than was
/// simulated, a small one costs less.
const WORTHWHILE: f64 = 0.95;
/// Hundredths by which a page is made smaller, as long as that takes less memory.
const SHRINK: [u64; 5] = [16, 8, 4, 2, 1];

/// Parts of the room of a page of which one more is kept free. The order in which a run allocates differs from the
/// simulation in small ways, and holes with it: by up to 1 % of a page in nearly all variations of recorded runs
/// (docs/log/memory-accuracy.md, "The size of the pages of a GPU").
const SPARE: u64 = 50;

/// Returns the bytes of a page of `page` bytes that allocations are planned to take.
pub(crate) fn room(page: u64) -> u64 {
    page - page / (SPARE + 1)
}

/// Returns the size of a page that has room for `bytes`, but at most `allocation` bytes.
pub(crate) fn page_for(bytes: Bytes, allocation: Bytes) -> Bytes {
    Bytes(bytes.0 + bytes.0.div_ceil(SPARE)).min(allocation.max(bytes))
}

/// Finds the page of at least `largest` and at most `allocation` bytes with which the least memory is `reserved`. Returns
/// the page and that memory. `reserved` has a limit beside the page: beyond it, any larger number will do.
pub(crate) fn best_page<E>(
    (largest, allocation): (Bytes, Bytes),
    mut reserved: impl FnMut(Bytes, Bytes) -> Result<Bytes, E>,
) -> Result<(Bytes, Bytes), E> {
    let filling = page_for(largest, allocation);
    let filled = reserved(filling, Bytes(u64::MAX))?;
    let mut best: Option<(Bytes, Bytes)> = None;
    for count in COUNTS {
        let page = Bytes(filled.0 / count).min(allocation);
        if page <= filling {
            continue;
        }
        let memory = reserved(page, Bytes(u64::MAX))?;
        let found = shrunk((page, memory), filling, &mut reserved)?;
        if best.is_none_or(|(_, least)| (found.1.0 as f64) < least.0 as f64 * WORTHWHILE) {
            best = Some(found);
        }
    }
    Ok(match best {
        Some(best) if best.1 < filled => best,
        _ => (filling, filled),
    })
}

/// Makes `page`, with which `memory` is reserved, smaller as long as that takes less memory, but not smaller than
/// `largest`. Returns the page and the memory. `reserved` is as for [`best_page`].
pub(crate) fn shrunk<E>(
    (mut page, mut memory): (Bytes, Bytes),
    largest: Bytes,
    mut reserved: impl FnMut(Bytes, Bytes) -> Result<Bytes, E>,
) -> Result<(Bytes, Bytes), E> {
    for hundredths in SHRINK {
        loop {
            let smaller = Bytes(page.0 - page.0 * hundredths / 100).max(largest);
            if smaller >= page {
                break;
            }
            let less = reserved(smaller, memory.saturating_sub(Bytes(1)))?;
            if less >= memory {
                break;
            }
            (page, memory) = (smaller, less);
        }
    }
    Ok((page, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reserves whole pages for `need` bytes, of which each page loses `lost`.
    fn paged(need: u64, lost: u64) -> impl FnMut(Bytes, Bytes) -> Result<Bytes, ()> {
        move |page, _| Ok(Bytes(need.div_ceil(page.0 - lost) * page.0))
    }

    #[test]
    fn fewer_pages_are_taken_where_each_page_loses_memory() {
        let (page, memory) = best_page((Bytes(1_100), Bytes(u64::MAX)), paged(100_000, 100)).unwrap();
        assert!(page.0 > 5_000 && memory.0 < 104_000, "{page:?} {memory:?}");
        // No page is larger than an allocation may be, nor smaller than the largest tensor.
        let (page, memory) = best_page((Bytes(1_100), Bytes(5_000)), paged(100_000, 100)).unwrap();
        assert!(page.0 <= 5_000 && memory.0 < 104_000, "{page:?} {memory:?}");
        let (page, _) = best_page((Bytes(60_000), Bytes(u64::MAX)), paged(100_000, 100)).unwrap();
        assert!(page.0 >= 60_000);
    }

    #[test]
    fn pages_are_as_small_as_their_number_allows() {
        let (page, memory) = shrunk((Bytes(40_000), Bytes(120_000)), Bytes(1), paged(100_000, 100)).unwrap();
        assert!(memory.0 < 102_500 && memory.0.is_multiple_of(page.0), "{page:?} {memory:?}");
    }
}
