#include "lockstep/data/download.h"

#include <openssl/evp.h>

#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/data/data_file.h"
#include "lockstep/formats/gzip_reader.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/pipe.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string curl_path(const std::vector<std::string>& environment) {
  std::string path = "/usr/bin:/bin";
  for (const std::string& entry : environment)
    if (entry.starts_with("PATH=")) path = entry.substr(5);
  const ProgramPath found = find_program("curl", path);
  return found.error_number == 0 ? found.path : "";
}

// Runs curl. Returns "" or curl's error.
std::string fetch(const std::string& url, const std::string& file) {
  SpawnRequest request;
  request.environment = whole_environment();
  request.executable = curl_path(request.environment);
  if (request.executable.empty()) return "the program curl is not installed";
  request.arguments = {"curl",
                       "--fail",
                       "--location",
                       "--silent",
                       "--show-error",
                       "--proto",
                       "=https,http,file",
                       "--proto-redir",
                       "=https,http",
                       "--connect-timeout",
                       "3",
                       "--speed-limit",
                       "10000",
                       "--speed-time",
                       "5",
                       "--max-time",
                       "300",
                       "--max-filesize",
                       "100000000",
                       "--output",
                       file,
                       "--",
                       url};
  Pipe complaint = make_pipe();
  request.standard_error = complaint.write.get();
  const ChildProcess child = spawn(request);
  complaint.write.reset();
  std::string text;
  while (read_available(complaint.read.get(), text) != ReadResult::END) {
  }
  const ExitStatus status = wait_exit(child.pid);
  if (status.success()) return "";
  while (text.ends_with('\n')) text.pop_back();
  return text.empty() ? str("curl ended with ", describe(status)) : printable(text);
}

// Fetches one file from one mirror. Returns "" or what is wrong.
std::string fetch_checked(const std::string& directory, const DownloadFile& file, const std::string& mirror) {
  const fs::path part = fs::path(directory) / str('.', file.name, '-', random_hex(4), ".part");
  std::string problem = fetch(mirror + file.name + ".gz", part.string());
  if (problem.empty()) {
    try {
      if (unpacked_sha256(part.string()) != file.sha256) problem = "it has another SHA-256 than it should";
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  std::error_code error;
  if (problem.empty()) fs::rename(part, fs::path(directory) / (file.name + ".gz"), error);
  if (error) problem = error.message();
  if (!problem.empty()) fs::remove(part, error);
  return problem;
}

}  // namespace

std::optional<std::string> download(const std::string& directory, std::span<const DownloadFile> files,
                                    std::span<const std::string> mirrors) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return str("cannot make the folder \"", printable(directory), "\": ", error.message());
  std::size_t first = 0;  // the mirror that worked last
  for (const DownloadFile& file : files) {
    if (!data_file(directory, file.name).empty()) continue;
    std::string problem = "there are no mirrors";
    for (std::size_t i = 0; i < mirrors.size() && !problem.empty(); ++i) {
      const std::size_t mirror = (first + i) % mirrors.size();
      problem = fetch_checked(directory, file, mirrors[mirror]);
      if (problem.empty())
        first = mirror;
      else
        problem = str(mirrors[mirror], file.name, ".gz: ", problem);
    }
    if (!problem.empty()) return problem;
  }
  return std::nullopt;
}

std::string unpacked_sha256(const std::string& path) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1)
    throw InternalError("OpenSSL has no SHA-256");
  GzipReader reader(path);
  std::vector<std::byte> buffer(std::size_t{1} << 16);
  while (const std::size_t count = reader.read(buffer)) EVP_DigestUpdate(context.get(), buffer.data(), count);
  std::array<unsigned char, 32> digest{};
  EVP_DigestFinal_ex(context.get(), digest.data(), nullptr);
  std::string text;
  constexpr std::string_view HEX = "0123456789abcdef";
  for (const unsigned char byte : digest) {
    text += HEX[byte >> 4U];
    text += HEX[byte & 0xfU];
  }
  return text;
}

}  // namespace lockstep
