//! Files that the driver reads.

use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;

use event::{DriverKind, Loop, Options, read_file, read_over, reads_files};
use mem::FileHandle;

/// A loop on the ring; `None` where there is none.
fn ring() -> Option<Loop> {
    let driver = DriverKind::Uring;
    let event_loop = Loop::new(Options { driver, ..Options::default() }).expect("a loop");
    if !driver.is_available() {
        assert!(!reads_files());
        return None;
    }
    assert!(reads_files());
    Some(event_loop)
}

fn pipe() -> (FileHandle, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (OwnedFd::from(reader).into(), writer)
}

#[test]
fn reads_fill_the_range_they_are_given() {
    let Some(mut event_loop) = ring() else { return };
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    let content: Vec<u8> = (0..50_000usize).map(|n| (n / 7) as u8).collect();
    assert_eq!(rustix::io::pwrite(&file, &content, 0).expect("written"), content.len());
    let file = FileHandle::from(file);
    let read = event_loop.block_on(async move {
        let memory = vec![b'.'; 40_000];
        let (memory, n) = read_file(file.clone(), memory, 100..30_000, 700).await?;
        assert_eq!(n, 29_900);
        assert!(memory[..100].iter().chain(&memory[30_000..]).all(|&byte| byte == b'.'));
        assert!(memory[100..30_000] == content[700..30_600]);
        // The end, and beyond it.
        let (memory, n) = read_file(file.clone(), memory, 0..40_000, 49_000).await?;
        assert!(n == 1000 && memory[..1000] == content[49_000..]);
        let (memory, n) = read_file(file.clone(), memory, 0..40_000, 90_000).await?;
        assert_eq!((n, memory.len()), (0, 40_000));
        // Pieces over one another; as many as one call takes.
        let (memory, n) = read_over(file.clone(), vec![0; 1000], 2_500, 700).await?;
        assert!(n == 2_500 && memory[..500] == content[2_700..3_200]);
        assert!(memory[500..] == content[2_200..2_700]);
        let (memory, n) = read_over(file.clone(), memory, 3_000, 49_500).await?;
        assert!(n == 500 && memory[..500] == content[49_500..]);
        assert_eq!(read_over(file.clone(), memory, 3_000, 50_000).await?.1, 0);
        let (_, n) = read_over(file.clone(), vec![0; 100], 40_000, 0).await?;
        assert!((100..40_000).contains(&n));
        // Many at the same time.
        let reads: Vec<_> =
            (0..300).map(|n| read_file(file.clone(), vec![0; 64], 0..64, n * 100)).collect();
        for (n, read) in reads.into_iter().enumerate() {
            let (memory, got) = read.await?;
            assert!(got == 64 && memory[..] == content[n * 100..n * 100 + 64]);
        }
        std::io::Result::Ok(())
    });
    read.expect("it runs").expect("reads succeed");
}

#[test]
fn failures_are_told() {
    let Some(mut event_loop) = ring() else { return };
    let read = event_loop.block_on(async {
        let folder = OwnedFd::from(std::fs::File::open("/").expect("the root"));
        read_file(folder.into(), vec![0; 16], 0..16, 0).await.map(|_| ())
    });
    let error = read.expect("it runs").expect_err("a folder is not read");
    assert_eq!(error.kind(), ErrorKind::IsADirectory);
}

#[test]
fn a_read_that_is_given_up_frees_its_place() {
    let Some(mut event_loop) = ring() else { return };
    let done = event_loop.block_on(async {
        let (reader, mut writer) = pipe();
        let read = event::timeout(20, read_file(reader.clone(), vec![0; 64], 0..64, 0)).await;
        assert!(read.is_err(), "nothing was written");
        event::testing::until(|| event::stats().waiting == 0).await;
        // No later bytes are lost to it.
        writer.write_all(b"later").expect("written");
        let (memory, n) = read_file(reader, vec![0; 64], 0..64, 0).await.expect("read");
        assert_eq!(&memory[..n], b"later");
    });
    done.expect("it runs");
}

#[test]
fn a_loop_ends_although_a_read_never_does() {
    let Some(mut event_loop) = ring() else { return };
    let (reader, writer) = pipe();
    event_loop
        .block_on(async move {
            event::spawn(async move {
                let _ = read_file(reader, vec![0; 64], 0..64, 0).await;
            });
            event::testing::turns(2).await;
        })
        .expect("it runs");
    // It would wait for as long as the pipe has a writer.
    drop(event_loop);
    drop(writer);
}
