// File calls of this program that fail, are cut short or end the process, at the number that a test asks for.
// The program that links file_faults.cpp calls its open(), write(), rename() and so on in place of libc's.
//
//   arm_file_fault("/tmp/x", 7, FileFault::NO_SPACE);       // the seventh call about something in /tmp/x
//   save();
//   file_fault_was_reached();
//
// Counted    open (for writing), mkdir, write, fsync, rename, renameat2, unlink, rmdir, ftruncate, pwrite and
//            flock, if their path or file lies in the folder.
#pragma once

#include <string>

enum class FileFault { NONE, KILL, NO_SPACE, IO_ERROR, INTERRUPTED, SHORT_WRITE };

// From now on no two paths change places in one step, as on NFS.
void deny_exchange();

void arm_file_fault(const std::string& folder, int call, FileFault fault);
bool file_fault_was_reached();

// From now on each of these calls about something in the folder is a line of `file`, such as "fsync PATH":
// creations, renames and removals before they happen, writes and syncs after. Processes can share the file.
void record_file_calls(const std::string& folder, const std::string& file);
