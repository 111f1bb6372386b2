use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{self, ThreadId};

use super::*;

fn writer(directory: &std::path::Path, told: DurableListener<()>) -> Arc<Writer<()>> {
    let segments = Arc::new(Segments::new(directory, true));
    Arc::new(Writer::new(segments, [7; 16], FramePosition { segment: 1, offset: 0 }, 0, 1 << 20, true, told))
}

fn staged(writer: &Writer<()>) -> u64 {
    writer.stage().unwrap().frame(FrameKind::Close, b"", crc32c::crc32c(b"")).number
}

#[test]
fn writer_turn_that_panics_fails() {
    let directory = tempfile::tempdir().unwrap();
    let writer = writer(directory.path(), Box::new(|_| panic!("no listener takes this group")));
    let number = staged(&writer);
    assert!(catch_unwind(AssertUnwindSafe(|| writer.wait(number))).is_err());
    for _ in 0..2 {
        let error = writer.wait(number).unwrap_err();
        assert!(matches!(&error, StoreError::Poisoned(why) if why.contains("panicked")), "{error}");
    }
}

#[test]
fn writer_task_uses_own_thread_where_spare() {
    let directory = tempfile::tempdir().unwrap();
    let wrote = Arc::new(Mutex::new(None::<ThreadId>));
    let told = Arc::clone(&wrote);
    let writer = writer(directory.path(), Box::new(move |_| *told.lock().unwrap() = Some(thread::current().id())));
    assert!(!writer.write_in_place(staged(&writer)).unwrap(), "without a runtime");
    let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(!one.block_on(async { writer.write_in_place(staged(&writer)) }).unwrap(), "it has one thread");
    assert_eq!(*wrote.lock().unwrap(), None);
    let two = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let of_task = Arc::clone(&writer);
    let task = async move { (of_task.write_in_place(staged(&of_task)).unwrap(), thread::current().id()) };
    let (is_written, by) = two.block_on(two.spawn(task)).unwrap();
    assert!(is_written);
    assert_eq!(*wrote.lock().unwrap(), Some(by));
    writer.was_slow.store(true, Ordering::Relaxed);
    let not_now = two.block_on(async { writer.write_in_place(staged(&writer)) });
    assert!(!not_now.unwrap(), "the disk was slow");
}
