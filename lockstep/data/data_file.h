// Finds the files of a data set on this machine.
//
//   const std::string folder = find_data_folder("cifar10", {"test_batch.bin"}, {.directory = option_data});
//   const std::string file = data_file(folder, "test_batch.bin");     // ".../test_batch.bin" or
//                                                                     // ".../test_batch.bin.gz"
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Returns the path of one file in `directory`, plain or .gz. For "images-idx3-ubyte" it also looks for
// "images.idx3-ubyte", which some tools write. Empty if there is none.
std::string data_file(const std::string& directory, const std::string& name);

// The same, but throws SystemError that names `dataset` and both names if there is no file.
std::string existing_data_file(const std::string& dataset, const std::string& directory,
                               const std::string& name);

// Returns the first folder that has all `files`: `directory`, or a folder `below` it. Empty if there is none.
std::string data_folder(const std::string& directory, const std::vector<std::string>& below,
                        const std::vector<std::string>& files);

// Describes files in `directory` that hold this data set in a form that only Python reads (pickles, .npz), as
// the end of a message. Empty if there are none.
std::string only_for_python(const std::string& directory);

struct FindDataOptions {
  std::string directory = {};           // --data DIR; "" means the usual places
  std::string checkout = ".";           // the folder that has data/
  std::vector<std::string> below = {};  // subfolders in which archives and other tools put the files
};

// Returns the first folder that has all `files`, plain or .gz. Looks in `directory` (only there if it is
// given), $LOCKSTEP_DATA/NAME, $LOCKSTEP_DATA, CHECKOUT/data/NAME and CHECKOUT/data; in each, also in the
// folders `below` it. Throws InvalidArgument that lists the places and what is missing in each; `hint` is its
// end.
std::string find_data_folder(const std::string& name, const std::vector<std::string>& files,
                             const FindDataOptions& options, const std::string& hint = "");

}  // namespace lockstep
