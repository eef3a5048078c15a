#include "lockstep/formats/dcp_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <sstream>

#include "lockstep/base/error.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace dcp_reader_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::run_python;
using testing::TempFolder;
using ::testing::ThrowsMessage;

// A model, its optimiser, tensors of many kinds, by one rank or by two with shards; prints each tensor's
// bytes.
constexpr const char* SAVE = R"(
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp, torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor, Shard
folder, ranks = sys.argv[1], int(sys.argv[2])
def state_of(mesh):
    torch.manual_seed(1)
    m = torch.nn.Linear(3, 5)
    o = torch.optim.AdamW(m.parameters())
    m(torch.ones(1, 3)).sum().backward()
    o.step()
    state = {"model": m.state_dict(), "optim": o.state_dict(), "step": 7, "t": torch.arange(6.0).view(2, 3).T,
             "zero": torch.tensor(3, dtype=torch.int64), "half": torch.ones(4).half(), "f8": torch.ones(3).to(torch.float8_e5m2)}
    if mesh is not None:
        for name, dim in (("rows", 0), ("columns", 1)):
            state[name] = distribute_tensor(torch.arange(35.0).view(7, 5), mesh, [Shard(dim)])
    return state
def work(rank, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    dcp.save(state_of(init_device_mesh("cpu", (ranks,))), checkpoint_id=folder)
    dist.destroy_process_group()
def show(name, value):
    if isinstance(value, dict):
        for key, item in value.items(): show(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value): show(f"{name}.{i}", item)
    elif isinstance(value, torch.Tensor):
        lines.append(f"{name} {list(value.shape)} {bytes(value.contiguous().clone().untyped_storage()).hex()}")
lines = []
if __name__ == "__main__":
    if ranks == 1:
        dcp.save(state_of(None), checkpoint_id=folder, no_dist=True)
    else:
        import socket
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mp.start_processes(work, (port,), ranks, start_method="fork")
    show("", state_of(None) | ({} if ranks == 1 else {n: torch.arange(35.0).view(7, 5) for n in ("rows", "columns")}))
    print("\n".join(sorted(lines)))
)";

std::string lines_of(DcpReader& reader) {
  std::ostringstream text;
  for (const DcpTensor& tensor : reader.tensors()) {
    text << tensor.name << " [";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) text << (i > 0 ? ", " : "") << tensor.shape[i];
    text << "] ";
    for (const std::byte byte : reader.read(tensor))
      text << "0123456789abcdef"[std::to_integer<unsigned>(byte) >> 4U]
           << "0123456789abcdef"[std::to_integer<unsigned>(byte) & 15U];
    text << '\n';
  }
  return text.str();
}

TEST(DcpReader, ReadsWhatPythonWrote) {
  for (const std::string ranks : {"1", "2"}) {
    const TempFolder folder;
    const std::string expected = run_python(SAVE, {folder / "saved", ranks});
    DcpReader reader(folder / "saved");
    EXPECT_TRUE(is_dcp_folder(folder / "saved"));
    EXPECT_EQ(lines_of(reader), expected);
    EXPECT_THAT(reader.skipped(), Contains("step"));
  }
}

// Damage anywhere in the metadata or the file: everything loads, or an error names the file.
TEST(DcpReader, ThreeThousandMutantsLoadOrAreRefusedByName) {
  const TempFolder folder;
  run_python(SAVE, {folder / "saved", "1"});
  std::mt19937 random(29);
  int refused = 0;
  for (const std::string name : {"saved/.metadata", "saved/__0_0.distcp"}) {
    const std::string whole = folder.read(name);
    for (int i = 0; i < 1500; ++i) {
      std::string mutant = whole;
      const std::size_t at = random() % mutant.size();
      switch (random() % 4) {
        case 0: mutant[at] = static_cast<char>(random()); break;
        case 1: mutant.erase(at, 1 + random() % 64); break;
        case 2: mutant.insert(at, mutant.substr(random() % mutant.size(), random() % 64)); break;
        default: mutant.resize(at);
      }
      folder.write(name, mutant);
      try {
        DcpReader reader(folder / "saved");
        lines_of(reader);
      } catch (const FormatError& error) {
        EXPECT_THAT(error.what(), HasSubstr(folder / "saved"));
        ++refused;
      } catch (const SystemError& error) {
        EXPECT_THAT(error.what(), HasSubstr(folder / "saved"));
        ++refused;
      }
    }
    folder.write(name, whole);
  }
  EXPECT_GT(refused, 500);
}

TEST(DcpReader, RefusesCodeByName) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "saved");
  run_python(
      "import sys, os, pickle\nclass Evil:\n    def __reduce__(self): return os.system, ('true',)\n"
      "open(sys.argv[1], 'wb').write(pickle.dumps(Evil()))",
      {folder / "saved/.metadata"});
  EXPECT_THAT([&] { DcpReader(folder / "saved"); },
              ThrowsMessage<FormatError>(AllOf(HasSubstr("saved/.metadata"), HasSubstr("posix.system"))));
}

}  // namespace
}  // namespace dcp_reader_test
}  // namespace lockstep
