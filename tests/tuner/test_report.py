import json
import re
from itertools import pairwise

import pytest
from keras_sparse.tuner.reading import read_search
from keras_sparse.tuner.report import report_data, write_report
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from keras_sparse.files import write_json

from .browser import browser, resize
from .folders import write_folder

EVIL = "</script><script>window.stolen = 1</script><img src=x onerror='window.stolen = 1'>&amp;"

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("runs") / "fake", 30)
    row = {"trial": "03", "board": "uno", "accuracy": 0.9, "flash_bytes": 5000, "ram_bytes": 700}
    write_json(folder / "deployments" / "03-uno.json", row)
    return folder


@pytest.fixture(scope="module")
def page(folder, tmp_path_factory):
    path = write_report(folder)
    with browser(tmp_path_factory.mktemp("profile")) as driver:
        driver.get(path.as_uri())
        yield driver


def find(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def all_of(page, selector):
    return page.find_elements(By.CSS_SELECTOR, selector)


def test_the_report_is_one_file_that_asks_for_nothing(folder):
    text = write_report(folder).read_text()
    assert not re.search(r'(src|href)="(?!#)', text)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|innerHTML", text)
    assert "default-src 'none'" in text


def test_the_data_are_those_of_the_folder(folder):
    search = read_search(folder)
    content = report_data(search)
    assert [trial["id"] for trial in content["trials"]] == [r.trial_id for r in search.records]
    assert content["best"] == search.best.trial_id
    assert content["deployments"][0]["ram_bytes"] == 700
    volumes = [t["volume"] for t in content["trials"] if t["volume"] is not None]
    assert len(volumes) == 29 and volumes == sorted(volumes)
    json.dumps(content, allow_nan=False)


def test_it_opens_without_errors_and_shows_every_section(page, folder):
    assert page.get_log("browser") == []
    best = read_search(folder).best
    assert best.trial_id in find(page, "#answer").text
    for section in ("front", "progress", "pruning"):
        assert len(all_of(page, f"#{section}-chart .point")) >= 20
    assert len(all_of(page, "#winner-steps > li")) >= 1
    assert "uno" in find(page, "#boards-content").text


def test_hovering_shows_the_configuration(page, folder):
    point = find(page, "#front-chart .point[tabindex='0']")
    page.execute_script(
        "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", point
    )
    ActionChains(page).move_to_element(point).perform()
    tip = find(page, "#tip")
    assert tip.is_displayed()
    trial = point.get_attribute("data-trial")
    record = next(r for r in read_search(folder).records if r.trial_id == trial)
    assert f"trial {trial}" in tip.text
    assert next(iter(record.configuration)) in tip.text


def test_choosing_a_point_shows_its_network_and_its_lineage(page, folder):
    search = read_search(folder)
    front = {record.trial_id for record in search.front}
    child = next(r for r in search.records if r.reference and r.trial_id in front)
    point = find(page, f"#front-chart .point[data-trial='{child.trial_id}']")
    page.execute_script("arguments[0].focus()", point)
    point.send_keys(Keys.ENTER)
    assert f"Trial {child.trial_id}" in find(page, "#trial-title").text
    drawn = find(page, "#network svg").get_attribute("aria-label")
    for node in search.networks[child.trial_id].nodes:
        assert node.name in drawn
    names = [button.text for button in all_of(page, "#lineage > li > button")]
    assert names[-2:] == [f"trial {child.reference}", f"trial {child.trial_id}"]
    assert child.trial_id in find(page, "#trials tr.selected").text
    all_of(page, "#lineage > li > button")[0].click()
    assert names[0].capitalize() in find(page, "#trial-title").text


def test_the_table_sorts_and_filters_by_budget(page, folder):
    def column(number):
        cells = all_of(page, f"#trials tbody td:nth-child({number})")
        return [float(c.text.replace(",", "").replace("%", "").strip()) for c in cells]

    search = read_search(folder)
    within = [r for r in search.front if r.metrics["flash"] <= 2048]
    within = [r for r in within if r.metrics["working_memory"] <= 2048]
    assert len(column(2)) == len(within)
    assert column(2) == sorted(column(2), reverse=True)
    heading = all_of(page, "#trials th")[2]
    heading.find_element(By.TAG_NAME, "button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(3) == sorted(column(3))
    flash = find(page, "#filter-flash")
    flash.clear()
    flash.send_keys("300")
    assert max(column(4)) <= 300
    assert 0 < len(column(4)) < len(within)
    flash.clear()
    flash.send_keys("lots")
    assert flash.get_attribute("aria-invalid") == "true"
    for field in ("ram", "flash"):
        find(page, f"#filter-{field}").send_keys(Keys.CONTROL, "a", Keys.DELETE)
    find(page, "#filter-front").click()
    assert len(all_of(page, "#trials tbody tr")) == 30


def test_axes_and_colours_can_be_chosen(page):
    before = find(page, "#front-chart").get_attribute("outerHTML")
    Select(find(page, "#front-colour")).select_by_value("working_memory")
    coloured = find(page, "#front-chart").get_attribute("outerHTML")
    assert coloured != before and "rgb(" in coloured
    assert "working memory" in find(page, "#front-legend").text
    Select(find(page, "#front-x")).select_by_value("working_memory")
    assert "working memory, bytes" in find(page, "#front-chart").text
    Select(find(page, "#progress-x")).select_by_value("hours")
    assert "hours of training" in find(page, "#progress-chart").text
    slider = find(page, "#pruning-least")
    count = len(all_of(page, "#pruning-chart .point"))
    page.execute_script(
        "arguments[0].value = 85; arguments[0].dispatchEvent(new Event('input'))", slider
    )
    assert 0 < len(all_of(page, "#pruning-chart .point")) < count
    assert page.get_log("browser") == []


def test_it_is_readable_on_a_phone(page):
    resize(page, 390, 844)
    try:
        assert page.execute_script("return document.documentElement.scrollWidth") <= 390
        sizes = page.execute_script(
            "return [...document.querySelectorAll('.chart:not(.wide) svg text')].map(t =>"
            " t.getBoundingClientRect()).map(r => [Math.max(r.width, r.height), r.left, r.right])"
        )
        assert len(sizes) > 20
        assert min(size[0] for size in sizes) >= 12  # pixels: the height of a line
        assert min(left for _, left, _ in sizes) >= 0
        assert max(right for *_, right in sizes) <= 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_screen_reader_finds_its_way(page):
    assert find(page, "html").get_attribute("lang") == "en"
    assert page.title == "Search fake"
    levels = [int(h.tag_name[1]) for h in all_of(page, "h1, h2, h3")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))
    for field in all_of(page, "input, select"):
        assert field.accessible_name
    for drawing in all_of(page, "svg[role]"):
        assert drawing.accessible_name
    for point in all_of(page, "#front-chart .point"):
        assert point.aria_role == "button" and "trial" in point.accessible_name
    assert all_of(page, "main") and all_of(page, "nav") and all_of(page, "header")
    assert find(page, "#trials caption").get_attribute("textContent")


def test_a_strangers_folder_injects_nothing(tmp_path):
    folder = write_folder(tmp_path / "runs" / "strange<b>", 6)
    for name in ("trial_00/proposal.json", "trial_01/result.json", "command.json"):
        path = folder / name
        content = json.loads(path.read_text())
        if "configuration" in content:
            content["configuration"] = {EVIL: EVIL}
        if "network" in content:
            content["network"]["images"] = {EVIL: [1, 1, 1]}
            content["network"]["nodes"][0]["kind"] = EVIL
            for node in content["network"]["nodes"]:
                node["inputs"] = [EVIL]
        content.update(data=EVIL, reason=EVIL)
        content.setdefault("metrics", {})[EVIL] = 1.0
        if name.startswith("trial_00"):
            del content["metrics"], content["data"], content["reason"]
        path.write_text(json.dumps(content))
    write_json(folder / "deployments" / "a.json", {"trial": EVIL, "board": EVIL, EVIL: 1})
    path = write_report(folder, tmp_path / "page.html")
    assert EVIL not in path.read_text()
    with browser(tmp_path / "profile") as driver:
        driver.get(path.as_uri())
        for trial in ("00", "01"):
            driver.execute_script(f"choose('{trial}')")
        assert driver.execute_script("return window.stolen") is None
        assert all_of(driver, "img") == []
        assert EVIL in find(driver, "#boards-content").text
        assert EVIL in find(driver, "#about").text
        assert driver.get_log("browser") == []


def test_a_search_that_has_hardly_begun_has_a_report(tmp_path):
    with browser(tmp_path / "profile") as driver:
        for trials in (0, 1):
            folder = write_folder(tmp_path / f"new{trials}", trials)
            driver.get(write_report(folder).as_uri())
            assert "no trial has completed" in find(driver, "#answer").text
            assert "No trial has completed yet" in find(driver, "#front-chart").text
            assert driver.get_log("browser") == []
