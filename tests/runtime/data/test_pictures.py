"""One reader of pictures: what cameras and drawing programs write, and what is no picture."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from flipbit.runtime.commands.cli import main
from flipbit.runtime.data.pictures import FITS, PictureError, fitted, read_picture
from flipbit.runtime.errors import InputError
from flipbit.train.data import batches as training
from tests.nets.small_nets import small_image

RANDOM = np.random.default_rng(0)


def pixels(path: Path, channels: int = 3) -> np.ndarray:
    return read_picture(path, channels).pixels


def blocks(height: int, width: int) -> np.ndarray:
    """Four colours, one in each quarter: smooth enough for JPEG, and different when turned."""
    picture = np.zeros((height, width, 3), np.uint8)
    h, w = height // 2, width // 2
    for place, colour in (
        ((0, 0), (250, 10, 10)),
        ((0, 1), (10, 250, 10)),
        ((1, 0), (10, 10, 250)),
        ((1, 1), (240,) * 3),
    ):
        picture[place[0] * h : (place[0] + 1) * h, place[1] * w : (place[1] + 1) * w] = colour
    return picture


def png16(path: Path, values: np.ndarray, colour: int) -> Path:
    """A 16-bit PNG, written by hand: Pillow does not write colour ones."""
    height, width = values.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    return path


@pytest.mark.parametrize("colour", [0, 2, 4, 6], ids=["grey", "RGB", "grey+alpha", "RGBA"])
def test_16_bits_per_value_keep_their_upper_8(tmp_path: Path, colour: int) -> None:
    depth = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    values = RANDOM.integers(0, 65536, (7, 9, depth), np.uint16)
    if depth in (2, 4):
        values[..., -1] = 65535
    found = pixels(png16(tmp_path / "a.png", values, colour))
    expected = np.repeat(values[..., :1], 3, 2) if depth < 3 else values[..., :3]
    assert np.abs(found.astype(int) - (expected >> 8)).max() <= (1 if depth in (2, 4) else 0)
    assert found.std() > 50  # not all white


def test_16_bit_pgm_is_not_white(tmp_path: Path) -> None:
    values = RANDOM.integers(0, 65536, (4, 5), np.uint16)
    (tmp_path / "a.pgm").write_bytes(b"P5 5 4 65535\n" + values.astype(">u2").tobytes())
    assert (pixels(tmp_path / "a.pgm", 1)[..., 0] == values >> 8).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_a_turned_camera_gives_an_upright_picture(tmp_path: Path, orientation: int, suffix: str) -> None:
    upright = Image.fromarray(blocks(32, 48))
    stored = {
        1: None, 2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_90",
        7: "TRANSVERSE", 8: "ROTATE_270",
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = upright.transpose(Image.Transpose[stored]) if stored else upright
    options = {"lossless": True} if suffix == ".webp" else {"quality": 95} if suffix == ".jpg" else {}
    picture.save(tmp_path / f"a{suffix}", exif=exif, **options)
    found = read_picture(tmp_path / f"a{suffix}", 3)
    assert found.size == (32, 48)
    assert np.abs(found.pixels.astype(int) - np.asarray(upright)).mean() < 8
    # What training reads is the same, byte for byte.
    assert (np.asarray(training.read_image(tmp_path / f"a{suffix}", "RGB")) == found.pixels).all()


def test_broken_exif_does_not_hide_a_good_picture(tmp_path: Path) -> None:
    Image.fromarray(blocks(8, 8)).save(tmp_path / "a.jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + bytes(20))
    assert pixels(tmp_path / "a.jpg").shape == (8, 8, 3)


def test_transparent_pixels_are_on_white(tmp_path: Path) -> None:
    rgba = np.zeros((2, 2, 4), np.uint8)
    rgba[0] = (200, 100, 50, 255)
    rgba[1] = (200, 100, 50, 0)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    found = pixels(tmp_path / "a.png")
    assert found[0, 0].tolist() == [200, 100, 50] and found[1, 0].tolist() == [255, 255, 255]
    assert pixels(tmp_path / "a.png", 1)[1, 0].tolist() == [255]
    assert (pixels(tmp_path / "a.png", 4) == rgba).all()
    palette = Image.fromarray(rgba).quantize(4)
    palette.save(tmp_path / "b.png")
    assert pixels(tmp_path / "b.png")[1, 0].tolist() == [255, 255, 255]
    Image.fromarray(rgba).convert("LA").save(tmp_path / "c.png")
    assert pixels(tmp_path / "c.png", 1)[1, 0].tolist() == [255]


def test_palettes_one_bit_cmyk_and_frames(tmp_path: Path) -> None:
    picture = Image.fromarray(blocks(16, 16))
    picture.quantize(8).save(tmp_path / "p.png")
    assert np.abs(pixels(tmp_path / "p.png").astype(int) - blocks(16, 16)).max() < 12
    bits = RANDOM.integers(0, 2, (8, 8)).astype(bool)
    Image.fromarray(bits).save(tmp_path / "b.png")
    assert (pixels(tmp_path / "b.png", 1)[..., 0] == bits * 255).all()
    picture.convert("CMYK").save(tmp_path / "c.jpg", quality=95)
    assert np.abs(pixels(tmp_path / "c.jpg").astype(int) - blocks(16, 16)).mean() < 12
    for name in ("g.gif", "w.webp"):
        white = Image.new("RGB", (16, 16), "white")
        picture.save(tmp_path / name, save_all=True, append_images=[white], duration=100)
        assert np.abs(pixels(tmp_path / name).astype(int) - blocks(16, 16)).mean() < 20


def test_colour_for_a_grey_net_and_grey_for_a_colour_net(tmp_path: Path) -> None:
    Image.fromarray(blocks(8, 8)).save(tmp_path / "c.png")
    assert pixels(tmp_path / "c.png", 1)[0, 0, 0] == round(0.299 * 250 + 0.587 * 10 + 0.114 * 10)
    Image.fromarray(np.full((3, 3), 77, np.uint8)).save(tmp_path / "g.png")
    assert np.unique(pixels(tmp_path / "g.png", 3)).tolist() == [77]


def test_a_picture_too_large_is_one_line(tmp_path: Path) -> None:
    small = png16(tmp_path / "huge.png", np.zeros((1, 1), np.uint16), 0).read_bytes()
    head = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 16, 0, 0, 0, 0)
    (tmp_path / "huge.png").write_bytes(small[:12] + head + struct.pack(">I", zlib.crc32(head)) + small[33:])
    with pytest.raises(PictureError, match=r"huge.png: not a readable picture \(more than [\d,]+ pixels\)$"):
        pixels(tmp_path / "huge.png")


def test_no_other_format_is_decoded_whatever_its_name(tmp_path: Path) -> None:
    """PostScript would be handed to another program."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    with pytest.raises(PictureError, match="damaged, or something else"):
        pixels(tmp_path / "a.png")
    Image.fromarray(blocks(8, 8)).save(tmp_path / "b.tiff")
    (tmp_path / "b.tiff").rename(tmp_path / "b.png")
    with pytest.raises(PictureError):
        pixels(tmp_path / "b.png")


@given(st.data())
def test_a_mutated_picture_is_read_or_refused_and_nothing_else(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    saved = io.BytesIO()
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "WEBP", "PPM"]))
    Image.fromarray(blocks(12, 10)).save(saved, kind)
    content = bytearray(saved.getvalue())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("mutated") / "a.png"
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        found = read_picture(path, 3, (8, 8)).pixels
    except PictureError:
        return
    assert found.shape == (8, 8, 3) and found.dtype == np.uint8


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 20), st.integers(1, 20), st.sampled_from(FITS))
def test_every_size_fits(height: int, width: int, to_height: int, to_width: int, how: str) -> None:
    flat = Image.new("RGB", (width, height), (90, 90, 90))
    found = np.asarray(fitted(flat, (to_height, to_width), how))
    assert found.shape == (to_height, to_width, 3)
    if how != "letterbox":
        assert np.unique(found).tolist() == [90]  # no border creeps in


def test_the_ways_to_fit_do_what_they_say() -> None:
    wide = Image.fromarray(blocks(20, 60))
    # red left above, green right above, blue left below, white right below; the middle 20 columns are half and half
    crop = np.asarray(fitted(wide, (20, 20), "crop"))
    assert (crop == blocks(20, 60)[:, 20:40]).all()
    box = np.asarray(fitted(wide, (20, 20), "letterbox"))
    assert not box[:6].any() and not box[-6:].any() and box[8:12].any()
    stretch = np.asarray(fitted(wide, (20, 20), "stretch"))
    assert np.abs(stretch.astype(int) - blocks(20, 20)).mean() < 12


@pytest.fixture
def photos_folder(tmp_path: Path) -> Path:
    """What a phone leaves: several sizes and formats, a hidden file, one cut short, and something else."""
    (tmp_path / "m.fbit").write_bytes(small_image())
    folder = tmp_path / "photos"
    folder.mkdir()
    for i, size in enumerate([(40, 30), (30, 40), (9, 8), (200, 10)]):
        Image.fromarray(blocks(*size)).save(folder / f"{i}.jpg")
    (folder / "cut.jpg").write_bytes((folder / "0.jpg").read_bytes()[:300])
    (folder / "._0.jpg").write_bytes(b"Mac OS X")
    (folder / "notes.txt").write_text("not a picture")
    return folder


def test_photos_of_any_size_need_no_option(photos_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(photos_folder.parent / "m.fbit"), str(photos_folder)]) == 0
    printed = capsys.readouterr()
    assert all(f"{i}.jpg" in printed.out for i in range(4)) and "cut.jpg" not in printed.out
    assert "note: 1 of 5 pictures left out: " in printed.err and "cut.jpg: not a readable picture" in printed.err
    assert "3 of 4 pictures were not 9×8: the middle was cut out and scaled" in printed.err
    answers = {}
    for how in FITS:
        assert main(["run", str(photos_folder.parent / "m.fbit"), str(photos_folder), "--resize", how, "--json"]) == 0
        answers[how] = capsys.readouterr().out
    assert len({text.split("seconds")[1].split("each")[1] for text in answers.values()}) == 3


def test_unreadable_pictures_end_with_2_only_when_nothing_was_read(
    photos_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image, bad, good = str(photos_folder.parent / "m.fbit"), photos_folder / "cut.jpg", photos_folder / "1.jpg"
    assert main(["run", image, str(bad)]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "cut.jpg: not a readable picture" in said.err and not said.out
    assert main(["run", image, str(bad), str(good)]) == 0
    said = capsys.readouterr()
    assert "left out: " in said.err and "1.jpg" in said.out
    for file in photos_folder.glob("[0-9].jpg"):
        file.write_bytes(b"none")
    assert main(["run", image, str(photos_folder)]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "none of 5 pictures could be read" in said.err


def test_a_way_to_fit_that_is_none_is_bad_usage(photos_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["run", "m.fbit", str(photos_folder), "--resize", "squash"])
    assert stop.value.code == 2 and "expected crop, letterbox, stretch" in capsys.readouterr().err


def test_training_and_running_see_the_same_pixels(tmp_path: Path) -> None:
    from flipbit.runtime.data.load import load_data

    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for i in range(6):
            exif = Image.Exif()
            exif[0x0112] = 1 + i
            noise = RANDOM.integers(0, 256, (20 + i, 31, 3), np.uint8)
            Image.fromarray(noise).save(tmp_path / name / f"{i}.png", exif=exif)
    trained = training.load(str(tmp_path), image_size=16)
    run = load_data(str(tmp_path), (16, 16, 3), ["cat", "dog"])
    assert isinstance(trained, training.ImageArrays)
    together = {(x.tobytes(), int(y)) for x, y in zip(trained.x_train, trained.y_train)}
    together |= {(x.tobytes(), int(y)) for x, y in zip(trained.x_test, trained.y_test)}
    assert together == {(x.tobytes(), int(y)) for x, y in zip(run.x, run.y)}


def test_without_pillow_scaling_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "a.ppm").write_bytes(b"P6 8 9 255\n" + bytes(8 * 9 * 3))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match="scaling to 4×4 needs pillow"):
        read_picture(tmp_path / "a.ppm", 3, (4, 4))
