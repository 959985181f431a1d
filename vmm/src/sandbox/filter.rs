// SPDX-License-Identifier: Apache-2.0
//! From a list to a filter in the kernel.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process;

use libc::{BPF_ABS, BPF_JA, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_W, seccomp_data};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::lists::{self, Call, When};
use super::{JailError, Kind};

/// What happens when a thread calls what its filter does not allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Seccomp {
    /// The call is not made, and the VM ends with a line that names thread and call.
    #[default]
    True,
    /// Nothing: there are no filters.
    False,
    /// The call is made, and the host's kernel logs it.
    Log,
}

/// The filters of a thread of `kind`, in the order in which they are to be installed.
pub(super) fn compile(kind: Kind, seccomp: Seccomp) -> Result<Vec<BpfProgram>, JailError> {
    let otherwise = match seccomp {
        Seccomp::Log => SeccompAction::Log,
        Seccomp::True | Seccomp::False => SeccompAction::Trap,
    };
    let main = program(lists::of(kind), &SeccompAction::Allow, &otherwise);
    let absent = Some(lists::absent(kind)).filter(|calls| !calls.is_empty()).map(|calls| {
        let no_such_call = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
        program(calls.iter().copied(), &no_such_call, &SeccompAction::Allow)
    });
    let made: Result<_, _> = absent.into_iter().chain([main]).collect();
    made.map_err(|source| JailError::List { kind, source })
}

/// Answers the calls that are listed by `listed` and all others by `otherwise`. What is of another architecture ends the process.
fn program(
    calls: impl Iterator<Item = Call>,
    listed: &SeccompAction,
    otherwise: &SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let (always, sometimes): (Vec<_>, Vec<_>) = calls.partition(|Call(_, when)| *when == When::Always);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for Call(number, when) in sometimes {
        for condition in conditions(when) {
            rules.entry(number).or_default().push(SeccompRule::new(vec![condition?])?);
        }
    }
    // A call without rules is answered whatever its arguments are.
    rules.extend(always.into_iter().map(|Call(number, _)| (number, Vec::new())));
    let rules: Vec<_> = rules.into_iter().collect();
    let each = rules.len().isqrt().max(1);
    let parts = rules.chunks(each).map(|part| {
        let first = part.first().map_or(0, |(number, _)| *number);
        let rules = part.iter().cloned().collect();
        let filter = SeccompFilter::new(rules, otherwise.clone(), listed.clone(), TargetArch::x86_64)?;
        Ok((first, filter.try_into()?))
    });
    Ok(joined(parts.collect::<Result<_, BackendError>>()?))
}

/// One program of several, each for the calls from its number on to the next one's, and the first for those before, too. A filter of
/// the library compares with one call after the other, and the kernel goes through it for all calls that there are when it is
/// installed: that would be most of what a jail takes.
fn joined(parts: Vec<(i64, BpfProgram)>) -> BpfProgram {
    let statement = |code: u32, k: usize, jf: u8| sock_filter {
        // They have 16 and 32 bits.
        code: u16::try_from(code).unwrap_or(0),
        jt: 0,
        jf,
        k: u32::try_from(k).unwrap_or(u32::MAX),
    };
    let mut program = vec![statement(BPF_LD | BPF_W | BPF_ABS, offset_of!(seccomp_data, nr), 0)];
    // Jumps are counted from the next instruction on. Those of the parts are within them.
    let mut left = 2 * parts.len().saturating_sub(1);
    let mut to = parts.iter().map(|(_, part)| part.len()).sum::<usize>();
    for (first, part) in parts.iter().skip(1).rev() {
        to -= part.len();
        left -= 2;
        program.push(statement(BPF_JMP | BPF_JGE | BPF_K, usize::try_from(*first).unwrap_or(0), 1));
        program.push(statement(BPF_JMP | BPF_JA, left + to, 0));
    }
    program.extend(parts.into_iter().flat_map(|(_, part)| part));
    program
}

/// Each is enough.
fn conditions(when: When) -> Vec<Result<SeccompCondition, BackendError>> {
    use SeccompCmpArgLen::{Dword, Qword};
    use SeccompCmpOp::{Eq, MaskedEq};
    match when {
        When::Always => Vec::new(),
        When::OneOf(argument, values) => {
            values.iter().map(|value| SeccompCondition::new(argument, Dword, Eq, u64::from(*value))).collect()
        }
        When::Null(argument) => vec![SeccompCondition::new(argument, Qword, Eq, 0)],
        When::Without(argument, bits) => vec![SeccompCondition::new(argument, Dword, MaskedEq(u64::from(bits)), 0)],
        When::With(argument, bits) => {
            vec![SeccompCondition::new(argument, Dword, MaskedEq(u64::from(bits)), u64::from(bits))]
        }
        When::Masked(argument, mask, bits) => {
            vec![SeccompCondition::new(argument, Dword, MaskedEq(u64::from(mask)), u64::from(bits))]
        }
        When::Ourselves(argument) => vec![SeccompCondition::new(argument, Dword, Eq, u64::from(process::id()))],
    }
}

/// Installs `filters` for this thread.
pub(super) fn install(filters: &[BpfProgram]) -> Result<(), JailError> {
    filters.iter().try_for_each(|filter| seccompiler::apply_filter(filter)).map_err(JailError::Filter)
}
