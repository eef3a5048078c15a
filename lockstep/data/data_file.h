// Where the files of a data set are on this machine.
//
//   const std::string folder = find_data_folder("cifar10", {"test_batch.bin"}, {.directory = option_data});
//   const std::string file = data_file(folder, "test_batch.bin");     // ".../test_batch.bin" or
//                                                                     // ".../test_batch.bin.gz"
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// The path of one file in `directory`, plain or .gz; of "images-idx3-ubyte" also with the dot that some tools
// write, "images.idx3-ubyte". Empty when none is there.
std::string data_file(const std::string& directory, const std::string& name);

// The same, but throws SystemError naming `dataset` and both names when neither is there.
std::string existing_data_file(const std::string& dataset, const std::string& directory,
                               const std::string& name);

// `directory` or the first of the folders `below` it that has all `files`; empty when none has.
std::string data_folder(const std::string& directory, const std::vector<std::string>& below,
                        const std::vector<std::string>& files);

// What lies in `directory` and is this data set as only Python reads it (pickles, .npz), as the end of a
// message; empty if nothing is.
std::string only_for_python(const std::string& directory);

struct FindDataOptions {
  std::string directory = {};           // --data DIR; "": look in the usual places
  std::string checkout = ".";           // the folder with data/
  std::vector<std::string> below = {};  // folders in which archives and other tools put the files
};

// The first of these folders that has all `files`, plain or .gz: `directory` (no other if it is given),
// $LOCKSTEP_DATA/NAME, $LOCKSTEP_DATA, CHECKOUT/data/NAME, CHECKOUT/data; of each, itself or a folder `below`
// it. Throws InvalidArgument that says where it looked and what is missing in each; `hint` goes at the end.
std::string find_data_folder(const std::string& name, const std::vector<std::string>& files,
                             const FindDataOptions& options, const std::string& hint = "");

}  // namespace lockstep
