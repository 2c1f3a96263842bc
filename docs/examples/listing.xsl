<?xml version="1.0" encoding="UTF-8"?>
<!-- A page of what autoindex lists with autoindex_format xml; see styling.conf. -->
<xsl:stylesheet version="1.0"
    xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
    xmlns:str="http://exslt.org/strings"
    exclude-result-prefixes="str">

  <xsl:output method="html" encoding="utf-8" doctype-system="about:legacy-compat"/>

  <!-- The folder's path, from the configuration. -->
  <xsl:param name="path" select="'/'"/>

  <xsl:template match="/list">
    <html>
      <head>
        <title><xsl:value-of select="$path"/></title>
        <style>
          body { font-family: sans-serif; margin: 2em }
          td { padding: 0 1em }
          .number { text-align: right }
        </style>
      </head>
      <body>
        <h1><xsl:value-of select="$path"/></h1>
        <table>
          <xsl:if test="$path != '/'">
            <tr><td><a href="../">../</a></td></tr>
          </xsl:if>
          <xsl:apply-templates select="directory">
            <xsl:sort select="."/>
          </xsl:apply-templates>
          <xsl:apply-templates select="file">
            <xsl:sort select="."/>
          </xsl:apply-templates>
        </table>
        <p><xsl:value-of select="count(file)"/> files,
          <xsl:value-of select="format-number(sum(file/@size), '#,##0')"/> bytes</p>
      </body>
    </html>
  </xsl:template>

  <xsl:template match="directory">
    <tr>
      <td><a href="{str:encode-uri(., true())}/"><xsl:value-of select="."/>/</a></td>
      <td/>
      <td><xsl:apply-templates select="@mtime"/></td>
    </tr>
  </xsl:template>

  <xsl:template match="file">
    <tr>
      <td><a href="{str:encode-uri(., true())}"><xsl:value-of select="."/></a></td>
      <td class="number"><xsl:value-of select="format-number(@size, '#,##0')"/></td>
      <td><xsl:apply-templates select="@mtime"/></td>
    </tr>
  </xsl:template>

  <!-- 2026-11-27T18:50:00Z -->
  <xsl:template match="@mtime">
    <xsl:value-of select="substring(translate(., 'T', ' '), 1, 16)"/>
  </xsl:template>
</xsl:stylesheet>
