// Hostile segments: whatever a file holds, a reader says what is wrong with it and does not crash.
#include "core/store/segment.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "store/segment_files.h"
#include "store/table_fixture.h"

namespace tfhybrid::segment_test {
namespace {

constexpr int64_t kRows = 200;

class SegmentTest : public TableFixture {
 protected:
  void SetUp() override {
    writer_ = Create(ConfigOf("t", 4));
    ASSERT_OK(CreateRows(writer_.get(), KeysBetween(0, kRows)));
  }

  template <typename Value>
  void Overwrite(const std::string& file, int64_t offset, Value value) {
    std::fstream stream(directory_.File(file), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(offset);
    stream.write(reinterpret_cast<const char*>(&value), sizeof(value));
    ASSERT_TRUE(stream.good()) << file;
  }

  // Opens the table afresh and looks every key up.
  Status Read() {
    auto reader = TableReader::Open(directory_.path(), kToken, "t");
    if (!reader.ok()) return reader.status();
    const std::vector<int64_t> keys = KeysBetween(0, kRows);
    std::vector<float> rows(kRows * 4);
    return reader.value()->Lookup(keys, rows.data());
  }
  void ExpectDamaged(const std::string& file, const std::string& what) {
    ExpectError(Read(), StatusCode::kDataLoss, {file, what});
  }

  std::unique_ptr<TableWriter> writer_;
};

TEST_F(SegmentTest, UntouchedTableReads) { EXPECT_OK(Read()); }

struct Damage {
  const char* field;
  size_t offset;
  const char* message;
};

class HeaderTest : public SegmentTest,
                   public testing::WithParamInterface<std::tuple<const char*, Damage>> {};

TEST_P(HeaderTest, WrongFieldIsNamed) {
  const auto& [file, damage] = GetParam();
  Overwrite(file, static_cast<int64_t>(damage.offset), uint32_t{0x5a5a5a5a});
  ExpectDamaged(file, damage.message);
}

INSTANTIATE_TEST_SUITE_P(
    , HeaderTest,
    testing::Combine(testing::Values("t.table", "t.index.2", "t.rows.0"),
                     testing::Values(Damage{"Magic", offsetof(SegmentHeader, magic), "magic"},
                                     Damage{"Format", offsetof(SegmentHeader, format), "format"},
                                     Damage{"Kind", offsetof(SegmentHeader, kind), "kind"},
                                     Damage{"Token", offsetof(SegmentHeader, token), "token"},
                                     Damage{"Size", offsetof(SegmentHeader, file_bytes), "size"},
                                     Damage{"Ordinal", offsetof(SegmentHeader, ordinal), "ordinal"},
                                     Damage{"Owner", offsetof(SegmentHeader, uid), "owner"},
                                     Damage{"Crc", offsetof(SegmentHeader, crc), "checksum"})),
    [](const auto& info) {
      std::string name = std::get<0>(info.param);
      for (char& c : name) c = c == '.' ? '_' : c;
      return name + std::get<1>(info.param).field;
    });

class FileTest : public SegmentTest, public testing::WithParamInterface<const char*> {};

TEST_P(FileTest, CutShortAnywhereIsDamage) {
  const std::string path = directory_.File(GetParam());
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  const int64_t lengths[] = {size - 1, size / 2, 100, 47, 1, 0};
  for (const int64_t left : lengths) {
    ASSERT_EQ(0, truncate(path.c_str(), left));
    ExpectDamaged(GetParam(), "");
  }
}

TEST_P(FileTest, LongerThanItSaysIsDamage) {
  std::filesystem::resize_file(directory_.File(GetParam()), 1 << 20);
  ExpectDamaged(GetParam(), "size");
}

TEST_P(FileTest, FileOfZerosIsNoSegment) {
  const std::string path = directory_.File(GetParam());
  const auto size = std::filesystem::file_size(path);
  ASSERT_EQ(0, truncate(path.c_str(), 0));
  ASSERT_EQ(0, truncate(path.c_str(), static_cast<int64_t>(size)));
  ExpectDamaged(GetParam(), "magic");
}

TEST_P(FileTest, LinkInsteadOfTheFileIsRefused) {
  const std::string path = directory_.File(GetParam());
  ASSERT_EQ(0, rename(path.c_str(), directory_.File("elsewhere").c_str()));
  ASSERT_EQ(0, symlink(directory_.File("elsewhere").c_str(), path.c_str()));
  ExpectError(Read(), StatusCode::kFailedPrecondition, {GetParam()});
}

TEST_P(FileTest, FileThatOthersMayReadIsRefused) {
  ASSERT_EQ(0, chmod(directory_.File(GetParam()).c_str(), 0644));
  ExpectError(Read(), StatusCode::kFailedPrecondition, {GetParam(), "0600", "644"});
}

TEST_P(FileTest, MissingFileIsNotFound) {
  ASSERT_EQ(0, unlink(directory_.File(GetParam()).c_str()));
  ExpectError(Read(), StatusCode::kNotFound, {GetParam()});
}

INSTANTIATE_TEST_SUITE_P(, FileTest, testing::Values("t.table", "t.index.2", "t.rows.0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

TEST_F(SegmentTest, ChangedShapeDoesNotMatchItsChecksum) {
  Overwrite("t.table", offsetof(TableSegment, shape) + offsetof(TableShape, dim), uint32_t{8});
  ExpectDamaged("t.table", "checksum");
}

TEST_F(SegmentTest, ImpossibleShapeIsDamageEvenWithAChecksum) {
  std::fstream stream(directory_.File("t.table"), std::ios::in | std::ios::out | std::ios::binary);
  TableSegment segment;
  stream.read(reinterpret_cast<char*>(&segment), sizeof(segment));
  segment.shape.first_chunk_log2 = segment.shape.chunk_log2 + 1;
  SealTable(&segment);
  stream.seekp(0);
  stream.write(reinterpret_cast<const char*>(&segment), sizeof(segment));
  stream.close();
  ExpectDamaged("t.table", "shape");
}

TEST_F(SegmentTest, IndexSlotsMustBeAPowerOfTwoThatTheFileHolds) {
  for (const uint64_t slots :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{384}, uint64_t{1} << 12,
        uint64_t{1} << 40, uint64_t{1} << 63, UINT64_MAX}) {
    Overwrite("t.index.2", offsetof(IndexSegment, slots), slots);
    ExpectDamaged("t.index.2", "slots");
  }
}

TEST_F(SegmentTest, IndexThatPointsPastTheRowsIsDamage) {
  // Every taken slot, so that some key meets it.
  for (const uint64_t row :
       {uint64_t{kRows}, uint64_t{1} << 40, uint64_t{1} << 62, UINT64_MAX - 1}) {
    for (int64_t slot = 0; slot < 512; ++slot) {
      Overwrite("t.index.2", kIndexSlotsOffset + slot * 16 + 8, row + 1);
    }
    ExpectDamaged("index of table 't'", "names row");
  }
}

TEST_F(SegmentTest, IndexWithKeysOfNoRowIsNotTakenOver) {
  // A single one, then all that were free: no insertion may look for an empty slot then.
  for (const int64_t strays : {1, 512}) {
    std::string index = ReadFile(directory_.File("t.index.2"));
    auto* slot = reinterpret_cast<IndexSlot*>(index.data() + kIndexSlotsOffset);
    for (int64_t left = strays, i = 0; left > 0 && i < 512; ++i, ++slot) {
      if (slot->row_plus_one != 0) continue;
      *slot = {int64_t{1} << 50 | i, 1};
      --left;
    }
    WriteFile(directory_.File("t.index.2"), index);
    ExpectError(TableWriter::Attach(directory_.path(), kToken, "t").status(), StatusCode::kDataLoss,
                {"Table 't'", "its index has"});
  }
}

TEST_F(SegmentTest, ChunkOfAnotherShapeIsDamage) {
  Overwrite("t.rows.1", offsetof(ChunkSegment, rows), uint64_t{65});
  ExpectDamaged("t.rows.1", "rows");
  Overwrite("t.rows.0", offsetof(ChunkSegment, row_floats), uint64_t{5});
  ExpectDamaged("t.rows.0", "floats");
}

TEST_F(SegmentTest, CountersThatPromiseTooMuchDoNotCrash) {
  const auto counters = static_cast<int64_t>(offsetof(TableSegment, counters));
  Overwrite("t.table", counters + static_cast<int64_t>(offsetof(TableCounters, rows)),
            uint64_t{1} << 40);
  EXPECT_OK(Read());
  const auto reader = Open("t");
  EXPECT_FALSE(reader->ReadRows(0, 100000, nullptr, nullptr).ok());
  Overwrite("t.table", counters + static_cast<int64_t>(offsetof(TableCounters, chunks)),
            uint64_t{100});
  ExpectError(Read(), StatusCode::kNotFound, {"t.rows."});
}

}  // namespace
}  // namespace tfhybrid::segment_test
