// Fits a line to points that the ranks share out, by gradient descent: examples/16_line_fit.c in Rust, over the C
// interface (lockstep/c/lockstep.h). Handles are i64, and every function answers a code; 0 is success.
//
//   build/lockstep run -n 2 build/examples/line_fit_rust
//   [0] 2 ranks fitted y = 2.00 x + 1.00 to 200 points
//
//   rustc -O line_fit.rs -l dylib=lockstep_core -L PREFIX/lib      # without CMake, from where Lockstep is installed
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::{null, null_mut};

const WORLD: i64 = 1; // lockstep/c/types.h has these numbers
const FLOAT64: c_int = 0;
const INT64: c_int = 10;
const SUM: c_int = 0;
const AVG: c_int = 1;

extern "C" {
    fn lockstep_init(options: *const c_void) -> c_int;
    fn lockstep_shutdown() -> c_int;
    fn lockstep_rank(group: i64, rank: *mut c_int) -> c_int;
    fn lockstep_size(group: i64, size: *mut c_int) -> c_int;
    fn lockstep_all_reduce(group: i64, data: *mut c_void, count: usize, dtype: c_int, op: c_int, work: *mut i64) -> c_int;
    fn lockstep_work_wait(work: i64, timeout_ms: i64) -> c_int;
    fn lockstep_work_free(work: i64) -> c_int;
    fn lockstep_error_text() -> *const c_char;
}

/// The text names rank, group, operation and remedy.
fn check(code: c_int) -> Result<(), String> {
    match code {
        0 => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(lockstep_error_text()) }.to_string_lossy().into_owned()),
    }
}

/// Averages `values` over all ranks, in place.
fn average(values: &mut [f64]) -> Result<(), String> {
    check(unsafe { lockstep_all_reduce(WORLD, values.as_mut_ptr().cast(), values.len(), FLOAT64, AVG, null_mut()) })
}

/// Half the mean square error's gradient by slope and offset.
fn gradient(line: &[f64; 2], points: &[(f64, f64)]) -> [f64; 2] {
    points.iter().fold([0.0, 0.0], |sum, &(x, y)| {
        let error = (line[0] * x + line[1] - y) / points.len() as f64;
        [sum[0] + error * x, sum[1] + error]
    })
}

fn main() -> Result<(), String> {
    let (mut rank, mut size, mut counting) = (0, 0, 0i64);
    check(unsafe { lockstep_init(null()) })?; // the environment decides; without a launcher this is a job of one
    check(unsafe { lockstep_rank(WORLD, &mut rank) })?;
    check(unsafe { lockstep_size(WORLD, &mut size) })?;

    // Rank r has every size-th point from r on.
    let xs = (0..100).map(|i| f64::from(i * size + rank) / f64::from(100 * size));
    let points: Vec<(f64, f64)> = xs.map(|x| (x, 2.0 * x + 1.0)).collect();

    // With a work at the end a call does not block: the points are counted while the line is fitted.
    let mut count = points.len() as i64;
    check(unsafe { lockstep_all_reduce(WORLD, (&raw mut count).cast(), 1, INT64, SUM, &mut counting) })?;
    let mut line = [0.0, 0.0];
    for _ in 0..400 {
        let mut mean = gradient(&line, &points);
        average(&mut mean)?;
        line[0] -= mean[0];
        line[1] -= mean[1];
    }
    check(unsafe { lockstep_work_wait(counting, 0) })?;
    check(unsafe { lockstep_work_free(counting) })?;
    if rank == 0 {
        println!("{size} ranks fitted y = {:.2} x + {:.2} to {count} points", line[0], line[1]);
    }
    check(unsafe { lockstep_shutdown() })
}
